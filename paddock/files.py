"""Files: written so that a reader never sees half of one (temporary name, fsync, rename), and read only if they are
files: a pipe that nobody writes to would be waited for without end, and a device has no end."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO

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


def read_regular(path: str | Path) -> bytes:
    """What a file holds. An OSError if it is something else: a pipe, a device, a folder."""
    with open_regular(path) as stream:
        return stream.read()


def open_regular(path: str | Path) -> BinaryIO:
    """A file, open for reading; an OSError if it is something else."""
    # Without waiting: opening a pipe would wait for somebody to write to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    names = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
    raise OSError(errno.EINVAL, f"it is {names.get(stat.S_IFMT(kind), 'a device')}, not a file", str(path))


def open_text(path: str | Path) -> TextIO:
    """A file of text, or a stream that is open already (`/dev/stdin`, or what a shell puts in place of `<(command)`),
    open for reading; an OSError if it is something else."""
    if str(path) == "/dev/stdin" or str(path).startswith(("/dev/fd/", "/proc/self/fd/")):
        return open(path, encoding="utf-8")
    return TextIOWrapper(open_regular(path), encoding="utf-8")


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
