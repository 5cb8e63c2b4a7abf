"""Processes that are ours from beginning to end: the `paddock` command and the workers it starts.

A library call in somebody's script or notebook must not change what belongs to the whole process, such as its
allocator, and does not decide how that ends. The entries of our own processes `claim` them.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

_is_ours = False
_is_done = False


def claim() -> None:
    """Say, first of all, that this process is ours. What is registered for its end from now on runs before `leave`
    is done with: such functions are called last come, first served."""
    global _is_ours
    _is_ours = True
    atexit.register(_skip_teardown)


def is_ours() -> bool:
    """Whether this process may be tuned as a whole."""
    return _is_ours


def leave(code: int) -> NoReturn:
    """End a process that has talked to others without taking its interpreter down; it has been claimed.

    The threads of collective libraries outlive destroyed process groups wherever a tensor or a cache remembers their
    mesh. One that gives a tensor back while Python is taken down is ended in the middle of a destructor, which aborts
    the process after all its work is done. After a failure the destructors may also wait for peers for ever, and so
    may what is registered for the end.
    """
    global _is_done
    if code == 0:
        _is_done = True
        sys.exit(0)
    _flush_and_exit(code)


def _skip_teardown() -> None:
    """The last of the functions that run at the end, just before Python begins to take modules down."""
    if _is_done:
        _flush_and_exit(0)


def _flush_and_exit(code: int) -> NoReturn:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
