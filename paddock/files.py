"""Writing files so that a reader never sees half of one: temporary name, fsync, rename."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from paddock.errors import MachineError


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; it takes the name `path` only if the block succeeds."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with disk_errors(path), open(temporary, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: str | Path) -> None:
    """Make a rename inside `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Bring a folder and all that is in it to the disk, whoever wrote it."""
    for place, _, files in os.walk(folder):
        for file in files:
            descriptor = os.open(os.path.join(place, file), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(place)


def replace_link(link: str | Path, target: str) -> None:
    """Point the symbolic link `link` at `target` (a name beside it) in one step."""
    link = Path(link)
    temporary = link.with_name(f".{link.name}.{os.getpid()}.partial")
    temporary.unlink(missing_ok=True)
    os.symlink(target, temporary)
    os.replace(temporary, link)


def user_path(text: str | Path) -> Path:
    """A path as somebody wrote it: `~` is his home, and `~name` another's, if there is one."""
    return Path(os.path.expanduser(text))


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Turn the disk's own refusals into errors that name the path and the remedy."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space, or choose another place",
            errno.EDQUOT: "the quota is used up: free some space, or choose another place",
            errno.EROFS: "the file system is read-only: choose another place",
            errno.EACCES: "you may not write there: choose another place",
            errno.EPERM: "you may not write there: choose another place",
            errno.ENOENT: "its folder is gone, or cannot be made there: choose another place",
            errno.ENOTDIR: "a part of that path is a file: choose another place",
            errno.EEXIST: "a part of that path is a file: choose another place",
            errno.ENAMETOOLONG: "a name in it is too long: choose a shorter one",
            errno.ELOOP: "its links lead in a circle: choose another place",
        }
        if error.errno not in remedies:
            raise
        raise MachineError(
            f"cannot write {path}", why=os.strerror(error.errno or 0), fix=remedies[error.errno]
        ) from error
