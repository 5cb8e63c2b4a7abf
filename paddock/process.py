"""Processes that are ours from beginning to end: the `paddock` command and the workers it starts.

A library call in somebody's script or notebook must not change what belongs to the whole process, such as its
allocator, and does not decide how that ends. The entries of our own processes `claim` them.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

SECONDS_WITHOUT_A_WORD = 30
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What asks a process to end, and can be heard."""

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


@contextmanager
def mortal() -> Iterator[None]:
    """While waiting for other processes inside C++, where no Python handler runs: a stop signal just ends us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def announced(wait: str) -> Iterator[None]:
    """Tell what is waited for, if it does not come soon: it may never come."""
    words = threading.Timer(SECONDS_WITHOUT_A_WORD, lambda: print(wait, file=sys.stderr, flush=True))
    words.daemon = True
    words.start()
    try:
        yield
    finally:
        words.cancel()


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
