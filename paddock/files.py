"""Files: written so that a reader never sees half of one (temporary name, fsync, rename), and read only if they are
files: a pipe that nobody writes to would be waited for without end, and a device has no end.

Temporary names cannot be guessed, are made exclusively and never through a link, and are locked by whoever writes
there: what is not locked was left by a process that is no more, and goes when the next one comes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO

from paddock.errors import MachineError, near_words

NAMES = "backslashreplace"
"""How a page shows a name of a file that is no UTF-8: its odd bytes by their numbers."""


@contextmanager
def atomic_write(path: str | Path, mode: str = "w", errors: str | None = None) -> Iterator[IO[Any]]:
    """Open a temporary file beside `path`; it takes the name `path` only if the block succeeds. A text is UTF-8, and
    what is not is an error, unless `errors` says otherwise."""
    path = Path(path)
    encoding, errors = (None, None) if "b" in mode else ("utf-8", errors)
    with temporary_file(path) as temporary:
        with disk_errors(path), open(temporary, mode, encoding=encoding, errors=errors) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        with disk_errors(path):
            os.replace(temporary, path)
    sync_directory(path.parent)


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """An empty file beside `path`, ours alone, gone after the block unless the block has renamed it."""
    with ExitStack() as stack:
        with disk_errors(path):
            temporary = stack.enter_context(_ours(path.parent, *_beside(path), _make_file))
        yield temporary


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside `path`, ours alone, gone after the block unless the block has renamed it."""
    with ExitStack() as stack:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(_ours(path.parent, *_beside(path), os.mkdir))
        yield temporary


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder where the system keeps what is temporary, for this user alone, gone after the block."""
    from tempfile import gettempdir

    with _ours(Path(gettempdir()), "paddock-scratch-", "", lambda path: os.mkdir(path, 0o700)) as folder:
        yield folder


def nearest_path(path: Path) -> str:
    """`did you mean "runs/tour"?`, of what there is where a path leads nowhere; nothing when nothing is near."""
    with suppress(OSError, ValueError):
        others = [str(other) for other in path.parent.iterdir() if not other.name.startswith(".")]
        return nearest_named(str(path), others)
    return ""


def nearest_named(path: str, others: Iterable[str]) -> str:
    """`did you mean "runs/tour"?`, of paths whose last part is like that of one which is not there."""

    def name_of(one: str) -> str:
        return os.path.splitext(os.path.basename(one.rstrip("/")))[0]  # the same ending makes no two alike

    by_name: dict[str, str] = {}
    for other in others:
        by_name.setdefault(name_of(other), other)
    near = [by_name[name] for name in near_words(name_of(path), list(by_name))]
    return "did you mean " + " or ".join(f'"{other}"' for other in near) + "?" if near else ""


def shell_word(path: str | Path) -> str:
    """A path as a shell takes it; of a name that is no UTF-8, the odd bytes by their numbers: $'run\\xff'."""
    import shlex

    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        signs = {"\\": "\\\\", "'": "\\'"}
        words = (signs.get(sign, sign) if sign.isprintable() else _by_its_bytes(sign) for sign in text)
        return f"$'{''.join(words)}'"
    return shlex.quote(text)


def _by_its_bytes(sign: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", "surrogateescape"))


def _beside(path: Path) -> tuple[str, str]:
    return f".{path.name}.", ".partial"


@contextmanager
def _ours(parent: Path, prefix: str, suffix: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """Something new under a name that nobody can guess, locked while we live; the dead leave theirs unlocked, and
    those are removed first."""
    sweep(parent, f"{escape(prefix)}*{suffix}")
    while True:
        path = parent / f"{prefix}{os.urandom(8).hex()}{suffix}"
        make(path)
        try:  # until it is locked, somebody who sweeps takes it for one of the dead
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            break
        os.close(descriptor)
    try:
        yield path
    finally:
        _remove(path)
        os.close(descriptor)


def _make_file(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))


def new_file(path: Path) -> Path:
    """Make an empty file that was not there: of this name or, if that is taken, of name-2, name-3, …"""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            free = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
            try:
                _make_file(free)
            except FileExistsError:
                continue
            return free
    raise AssertionError("numbers do not end")


def sweep(folder: Path, pattern: str = ".*.partial") -> None:
    """Remove what processes of this user that are no more have left of temporary files and folders."""
    for path in folder.glob(pattern):
        with suppress(OSError):  # a link, somebody else's, in use, or gone
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.getuid():
                    _remove(path)
            finally:
                os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def no_follow(path: str, flags: int) -> int:
    """An `opener` for `open` that refuses a symbolic link: somebody else may have put it there."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


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
    """Point the symbolic link `link` at `target` (a name beside it) in one step. A folder in its place, which copying
    without links (`cp -rL`) leaves, stays under another name."""
    link = Path(link)
    if link.is_dir() and not link.is_symlink():
        os.rename(link, link.with_name(f"{link.name}-copied-{os.urandom(4).hex()}"))
    prefix, suffix = _beside(link)
    temporary = link.with_name(f"{prefix}{os.urandom(8).hex()}{suffix}")
    os.symlink(target, temporary)  # never over something
    os.replace(temporary, link)


def read_regular(path: str | Path, max_bytes: int | None = None) -> bytes:
    """What a file holds. An OSError if it is something else (a pipe, a device, a folder) or is longer than that."""
    with open_regular(path) as stream:
        length = os.fstat(stream.fileno()).st_size
        if max_bytes is not None and length > max_bytes:
            raise OSError(errno.EFBIG, f"it has {length} bytes, where {max_bytes} are plenty", str(path))
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


def open_stream(path: str | Path) -> BinaryIO:
    """A file, or a stream that is open already (`/dev/stdin`, or what a shell puts in place of `<(command)`), open for
    reading; an OSError if it is something else."""
    is_open = str(path) == "/dev/stdin" or str(path).startswith(("/dev/fd/", "/proc/self/fd/"))
    return open(path, "rb") if is_open else open_regular(path)


def open_text(path: str | Path) -> TextIO:
    """The same, as text in UTF-8."""
    return TextIOWrapper(open_stream(path), encoding="utf-8")


def user_path(text: str | Path) -> Path:
    """A path as somebody wrote it: `~` is his home, and `~name` another's, if there is one."""
    return Path(os.path.expanduser(text))


def user_cache() -> Path:
    """Where this user keeps what can be made again: $XDG_CACHE_HOME/paddock or ~/.cache/paddock."""
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "paddock"


@contextmanager
def disk_errors(path: str | Path) -> Iterator[None]:
    """Turn the disk's own refusals into errors that name the path and the remedy."""
    try:
        yield
    except OSError as error:
        remedies = {
            errno.ENOSPC: "free some space, or choose another place",
            errno.EDQUOT: "the quota is used up: free some space, or choose another place",
            errno.EFBIG: "no file may be so large here (ulimit -f): raise the limit, or choose another place",
            errno.EROFS: "the file system is read-only: choose another place",
            errno.EACCES: "you may not write there: choose another place",
            errno.EPERM: "you may not write there: choose another place",
            errno.ENOENT: "its folder is gone, or cannot be made there: choose another place",
            errno.ENOTDIR: "a part of that path is a file: choose another place",
            errno.ELOOP: "it is a symbolic link, and may lead anywhere: remove it, or choose another place",
            errno.EISDIR: "it is a folder: move it away, or choose another place",
            errno.EEXIST: "a part of that path is a file: choose another place",
            errno.ENAMETOOLONG: "a name in it is too long: choose a shorter one",
        }
        if error.errno not in remedies:
            raise
        raise MachineError(
            f"cannot write {path}", why=os.strerror(error.errno or 0), fix=remedies[error.errno]
        ) from error
