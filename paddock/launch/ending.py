"""The end of a process that has talked to others."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End this process without taking the interpreter down.

    The threads of collective libraries outlive destroyed process groups wherever a tensor or a cache remembers their
    mesh. One that gives a tensor back while Python is taken down is ended in the middle of a destructor, which aborts
    the process after all its work is done. After a failure the destructors may also wait for peers for ever, and so
    may what is registered for the end.
    """
    try:
        if code == 0:
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
