"""The lock of a run directory: one run at a time writes into it. Who only reads (an evaluation, a report) needs none.

It is a lock of the kernel (flock) on a file, which ends with the last process that holds it, however that ends. Who
begins holds it alone, and then shares it with the processes of its own job: a launcher and its rank 0 both hold it, so
that it lasts as long as either of them does.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from paddock.documents import Document, read_document
from paddock.errors import ConfigError, DataError, MachineError
from paddock.files import disk_errors
from paddock.training.run_directory.files import LOCK, check_file

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""What file systems say that know no locks."""
AGAIN = (0.05, 0.2)
"""Seconds before another try: who only looks whether a lock is held has it himself for a moment."""


class Holder(Document):
    """Who holds the lock of a run directory, as its file says."""

    pid: int
    host: str
    verb: str
    since: str

    @staticmethod
    def me(verb: str) -> Holder:
        now = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
        return Holder(pid=os.getpid(), host=socket.gethostname(), verb=verb, since=now)


class RunLock:
    """A hold on a run directory; `share` it with the processes that are started next."""

    def __init__(self, run_dir: Path, descriptor: int) -> None:
        self._run_dir, self._descriptor = run_dir, descriptor

    def share(self) -> None:
        """Let processes of this job `join`, and still keep others out."""
        self._take(fcntl.LOCK_SH)

    def hold(self, verb: str) -> None:
        """Take it alone, and say in its file who holds it."""
        if self._take(fcntl.LOCK_EX):
            words = json.dumps(Holder.me(verb).model_dump()).encode()
            with disk_errors(self._run_dir / LOCK):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, words, 0)
        else:
            print(f"note: {self._run_dir} cannot be locked there: start no second run in it", file=sys.stderr)

    def _take(self, kind: int) -> bool:
        """Whether the file system knows locks; an error, if somebody else holds this one."""
        for wait in (*AGAIN, None):
            try:
                fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if wait is None:
                    raise in_use(self._run_dir) from None
                time.sleep(wait)
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
                return False
        raise AssertionError("the last try returns or raises")


@contextmanager
def locked(run_dir: Path, verb: str, *, is_new: bool = False) -> Iterator[RunLock]:
    """Keep everybody else from writing into a run directory, which is made if need be. One that is new, in `runs/`, or
    made here goes again, if an error comes before anything is in it."""
    if run_dir.exists() and not run_dir.is_dir():
        raise ConfigError(f"--run-dir {run_dir} is a file", fix="choose another name")
    made = [run_dir, run_dir.parent] if is_new else [path for path in (run_dir, *run_dir.parents) if not path.exists()]
    with disk_errors(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
    with _opened(run_dir) as lock:
        lock.hold(verb)
        try:
            yield lock
        except BaseException:
            if made and [path.name for path in run_dir.iterdir()] == [LOCK]:
                (run_dir / LOCK).unlink()
                with suppress(OSError):  # others are in `runs/`
                    for path in made:
                        path.rmdir()
            raise


@contextmanager
def joined(run_dir: Path) -> Iterator[None]:
    """Hold a lock together with the process that has taken and shared it."""
    with _opened(run_dir) as lock:
        lock.share()
        yield


def is_held(run_dir: Path) -> bool:
    """Whether a process is at a run directory; on a file system without locks nobody knows, and it is not."""
    try:
        descriptor = os.open(run_dir / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # never begun, or not ours to look into
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def holder_of(run_dir: Path) -> Holder | None:
    """Who is at a run directory, if somebody is and has said so."""
    try:
        return read_document(run_dir / LOCK, Holder) if is_held(run_dir) else None
    except DataError:
        return None


@contextmanager
def _opened(run_dir: Path) -> Iterator[RunLock]:
    check_file(run_dir / LOCK)
    with disk_errors(run_dir / LOCK):
        descriptor = os.open(run_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        yield RunLock(run_dir, descriptor)
    finally:
        os.close(descriptor)


def in_use(run_dir: Path) -> MachineError:
    """What to say to a second writer."""
    try:
        holder = read_document(run_dir / LOCK, Holder)
    except DataError:  # it has not said so yet
        return MachineError(f"{run_dir} is in use by another process", fix="wait for it, or choose another --run-dir")
    return MachineError(
        f"{run_dir} is in use",
        why=f"process {holder.pid} on {holder.host} is at it since {holder.since}: paddock {holder.verb}",
        fix=f"wait for it, stop it (kill {holder.pid}), or choose another --run-dir",
    )
