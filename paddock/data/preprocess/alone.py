"""One job at a time for an output prefix."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paddock.errors import DataError
from paddock.files import disk_errors


@contextmanager
def alone(prefix: str) -> Iterator[None]:
    """Hold `PREFIX.lock`, which the kernel frees even if the process is killed; an error if another job has it."""
    path = Path(f"{prefix}.lock")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _take(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _take(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DataError(
                f"another `paddock preprocess` is writing {path.with_suffix('')}",
                fix="wait for it, or choose another --output-prefix",
            ) from None
        except OSError:  # a file system without locks
            return descriptor
        # Whoever held the lock may have removed the file between our opening and our locking it.
        if path.exists() and os.path.samestat(os.stat(path), os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
