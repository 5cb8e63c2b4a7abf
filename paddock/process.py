"""Processes that are ours from beginning to end: the `paddock` command and the workers it starts.

A library call in somebody's script or notebook must not change what belongs to the whole process, such as its
allocator, and does not decide how that ends. The entries of our own processes `claim` them.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from paddock.activity import here
from paddock.errors import MachineError

MOST_PROCESSES = 2**20
"""Of a job, more than anybody has: a slip of the keyboard is refused before something is built for each of them."""
SECONDS_WITHOUT_A_WORD = 30
OUT_OF_MEMORY = re.compile(
    r"failed to map segment|cannot allocate memory|can't allocate memory|std::bad_alloc", re.IGNORECASE
)
"""How the loader of libraries, the kernel, torch and C++ say it."""
OUT_OF_FILES, OUT_OF_THREADS = "Too many open files", "can't start new thread"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a process to end, and can be heard."""

PATIENCE = 120.0
"""Seconds without progress after which a process that was asked to stop is taken to hang."""
TIMES_THE_LONGEST = 5
"""A process is given as many times what its longest piece of work has taken."""

_steps: int | None = None
"""The file that the launcher reads."""
_last_progress = _longest = 0.0
_unhurried = 0
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


def machine_lacks(error: BaseException) -> MachineError | None:
    """What to say if memory, files or threads ran out, however a library put it; None if that is not what happened."""
    words = next((line for line in str(error).splitlines() if OUT_OF_MEMORY.search(line)), "memory ran out")
    limit = _limit("RLIMIT_AS")
    if isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error)):
        if limit is None:
            return MachineError("there is too little memory", why=words, fix="use a smaller batch.micro or model")
        return MachineError(
            "there is too little address space",
            why=f"this process may take {limit / 2**30:.2f} GiB of it (ulimit -v): {words}",
            fix="raise the limit: ulimit -v unlimited",
        )
    if (isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)) or OUT_OF_FILES in str(error):
        allowed = "" if (limit := _limit("RLIMIT_NOFILE")) is None else f" (it may open {limit}: ulimit -n)"
        fix = "raise the limit: ulimit -n 65536"
        return MachineError("this process cannot open another file", why=f"{error}{allowed}", fix=fix)
    if limit is not None and isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
        # A library that runs out of memory while it is imported may take that for something that it can do without.
        why = f"{error}; this process may take {limit / 2**30:.2f} GiB of address space (ulimit -v), perhaps too little"
        return MachineError("a library cannot be imported", why=why, fix="raise the limit: ulimit -v unlimited")
    if isinstance(error, RuntimeError) and OUT_OF_THREADS in str(error):
        why = f"{error}: the limit of processes (ulimit -u), of memory (ulimit -v), or of the container is reached"
        return MachineError("this process cannot start another thread", why=why, fix="raise the limit")
    return None


def _limit(name: str) -> int | None:
    """What this process may have of something; None if there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(getattr(resource, name))[0]
    return None if limit == resource.RLIM_INFINITY else limit


def tell_steps_to(path: Path) -> None:
    """Let the launcher know how far this process has come, however it may end: in a file of one number."""
    global _steps
    _steps = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    with suppress(OSError):  # a temporary folder without room is no reason not to train
        os.write(_steps, f"{0:012}".encode())


def progress(step: int | None = None) -> None:
    """Note that a piece of work is done, such as a step (which one, if they have numbers) or a batch. After a stop
    signal, a process that notes nothing more is taken to hang, and left."""
    global _last_progress, _longest
    if step is not None and _steps is not None:
        with suppress(OSError):
            os.pwrite(_steps, f"{step:012}".encode(), 0)
    here.moved()
    now = time.monotonic()
    if _last_progress:
        _longest = max(_longest, now - _last_progress)
    _last_progress = now


@contextmanager
def unhurried() -> Iterator[None]:
    """What may take any time and must not be cut short: a checkpoint on its way to a slow disk, a user's callback."""
    global _unhurried, _last_progress
    progress()
    with _counting:
        _unhurried += 1
    try:
        yield
    finally:
        with _counting:
            _unhurried -= 1
        _last_progress = time.monotonic()


_counting = threading.Lock()


def hangs(since: float) -> bool:
    """Whether nothing has moved for too long, `since` the moment at which a stop was asked for."""
    patience = max(PATIENCE, TIMES_THE_LONGEST * _longest)
    return not _unhurried and time.monotonic() - max(since, _last_progress) > patience


def heard_signals() -> list[signal.Signals]:
    """The stop signals that this process listens to: one that nohup started ignores a closed terminal, and goes on
    doing so."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOP_SIGNALS if not (ignored and number == signal.SIGHUP)]


@contextmanager
def mortal() -> Iterator[None]:
    """While waiting for other processes inside C++, where no Python handler runs: a stop signal just ends us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in heard_signals()}
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
        _remove_temporary_folder()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _remove_temporary_folder() -> None:
    """multiprocessing's, with the socket of its fork server: Python removes it only when it takes itself down."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    folder = multiprocessing and multiprocessing.current_process()._config.get("tempdir")
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
