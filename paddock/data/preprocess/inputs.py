"""The files that a job reads: names and patterns become a list, and each is read as plain bytes.

Whatever cannot be read is found before work begins. An input is a file, `.gz`, `.zst`, a pipe or standard input. It is
plain text or a Parquet table if it is called so (.txt, .parquet), and else JSON lines.
"""

from __future__ import annotations

import glob
import gzip
import os
import select
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, Protocol, cast

from paddock.data.config import spreadsheet
from paddock.data.preprocess import tables
from paddock.errors import ConfigError, DataError, MachineError

STANDARD_INPUT = "-"
BLOCK = 1 << 20
TEXT = ".txt"
COMPRESSED = (".gz", ".zst")
NO_TEXT = {
    b"\x1f\x8b": ("compressed by gzip", "give it a name that ends in .gz"),
    b"(\xb5/\xfd": ("compressed by zstd", "give it a name that ends in .zst"),
    b"\xff\xfe": ("text in UTF-16", "make it UTF-8: iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "make it UTF-8: iconv -f UTF-16 -t UTF-8"),
    tables.MARK: ("a Parquet table", "give it a name that ends in .parquet"),
    b"PK\x03\x04": ("a ZIP archive, as office documents are", "unpack it, or save the document as text"),
    b"%PDF": ("a PDF", "save it as text"),
    b"\x89PNG": ("an image", "give text in UTF-8, or JSON lines"),
    b"\xff\xd8\xff": ("an image", "give text in UTF-8, or JSON lines"),
    b"MMIDIDX": ("the index of a corpus of tokens", "train on it as it is: --data.source indexed --data.path PREFIX"),
}
"""How files begin that are no text, what they are, and what to do."""


@dataclass(frozen=True)
class Input:
    """A file, or a stream: a pipe or standard input, of which nobody knows the size, and which is read only once."""

    path: str
    size: int | None = None
    modified: int | None = None
    """Nanoseconds since the epoch."""

    @property
    def is_stream(self) -> bool:
        return self.size is None

    @property
    def is_text(self) -> bool:
        """Whether it is plain text, by its name; else it is JSON lines."""
        return self.path.removesuffix(".gz").removesuffix(".zst").lower().endswith(TEXT)

    @property
    def is_table(self) -> bool:
        """Whether it is a Parquet table, by its name: its rows are read as JSON lines."""
        return self.path.lower().endswith(tables.SUFFIX)

    @property
    def kind(self) -> str:
        """What it is taken for, by its name."""
        return "plain text" if self.is_text else "a Parquet table" if self.is_table else "JSON lines"

    @property
    def unit(self) -> str:
        """What errors count in it."""
        return "row" if self.is_table else "line"

    @property
    def name(self) -> str:
        return "standard input" if self.path == STANDARD_INPUT else self.path


def find_inputs(patterns: Sequence[str], flag: str = "--input") -> list[Input]:
    """Every input in the order of the command line; the files of a pattern by name. `flag` is what names them."""
    if not patterns:
        raise ConfigError(f"{flag} names no file", fix=f"{flag} FILE…, a quoted pattern, or - for standard input")
    paths = [path for pattern in patterns for path in _expand(pattern, flag)]
    seen: set[str] = set()
    for path in paths:
        place = path if path == STANDARD_INPUT else os.path.realpath(path)
        if place in seen:
            raise ConfigError(
                f"{flag} names {path} twice", why="its documents would be there twice", fix="name it once"
            )
        seen.add(place)
    return [stat_input(path, flag) for path in paths]


def stat_input(path: str, flag: str = "--input") -> Input:
    """The input as it is now."""
    if path == STANDARD_INPUT:
        return Input(path)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise DataError(
                f"{flag} {path} is a folder",
                why="files of JSON lines or of plain text, or Parquet tables, are read",
                fix=f"name its files: {flag} '{os.path.join(path, '*.jsonl')}', or *.txt",
            )
        if not stat.S_ISREG(status.st_mode):
            return Input(path)
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        raise DataError(f"cannot read {flag} {path}", why=os.strerror(error.errno or 0), fix="check the path") from None
    return Input(path, status.st_size, status.st_mtime_ns)


def _expand(pattern: str, flag: str) -> list[str]:
    if pattern == STANDARD_INPUT or os.path.lexists(pattern) or not glob.has_magic(pattern):
        return [pattern]
    found = sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))
    if not found:
        raise DataError(f"{flag} {pattern} matches no file", fix="check the pattern")
    return found


class Reader(Protocol):
    """Anything with bytes in it; at its end, none. EOFError where data is missing."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class OpenInput:
    """The decompressed content of an input, and how much of the file itself has been used for it."""

    content: Reader
    file: BinaryIO | None

    def read(self, size: int) -> bytes:
        return self.content.read(size)

    def consumed(self) -> int:
        return 0 if self.file is None else self.file.tell()

    def skip(self, offset: int) -> None:
        """Go to an offset of the content; a compressed file must be read up to there."""
        if self.content is self.file:
            self.file.seek(offset)
            return
        while offset > 0:
            block = self.read(min(offset, BLOCK))
            if not block:
                raise EOFError("it is shorter than it was")
            offset -= len(block)


@contextmanager
def open_input(source: Input, stopped: Callable[[], bool]) -> Iterator[OpenInput]:
    """Open an input; what its name ends with says how it is compressed. Waiting for a stream ends when `stopped`."""
    if source.is_stream:
        place = 0 if source.path == STANDARD_INPUT else source.path
        # A named pipe would wait for somebody who writes to it, and meanwhile hear of no request to stop.
        with open(place, "rb", buffering=0, closefd=place != 0, opener=_without_waiting) as pipe:
            yield OpenInput(_decompressed(source.path, _PollingPipe(pipe, stopped)), None)
        return
    with open(source.path, "rb", buffering=0) as file:
        yield OpenInput(_decompressed(source.path, file), file)


def check_readable(source: Input, keys: Sequence[str] = ("text",), flag: str = "--json-keys") -> None:
    """Raise now, before any work, if a file is no text, if a package for its kind is missing, or if a table has no
    columns of these names, which `flag` gives."""
    if refusal := spreadsheet(source.path):
        raise DataError(f"{source.name} is a table, by its name", why=refusal.why, fix=refusal.fix)
    if source.is_table:
        if source.is_stream:
            why = "a Parquet table is read from its end"
            raise DataError(f"{source.name} is a stream", why=why, fix="write it to a file first")
        tables.check_table(source.path, keys, flag)
        return
    if not source.is_stream and not source.path.endswith(COMPRESSED):
        with open(source.path, "rb") as file:
            begin = file.read(max(map(len, NO_TEXT)))
        for mark, (kind, fix) in NO_TEXT.items():
            if begin.startswith(mark):
                why = "text in UTF-8, JSON lines and Parquet tables are read, each by its name"
                raise DataError(f"{source.name} is {kind}", why=why, fix=fix)
    if source.path.endswith(".zst") and _zstd_package() is None:
        raise MachineError(
            f"{source.path} needs the package zstandard",
            why="this Python cannot read .zst files by itself",
            fix="pip install zstandard, or unpack the file: zstdcat FILE | paddock preprocess --input - …",
        )


def reading_errors() -> tuple[type[Exception], ...]:
    """What a truncated or damaged file raises."""
    package = _zstd_package()
    return (EOFError, OSError, zlib.error, *([package.ZstdError] if package else []), *tables.table_errors())


def _decompressed(path: str, raw: Any) -> Reader:
    if path.endswith(".gz"):
        return gzip.GzipFile(fileobj=raw)
    if path.endswith(".zst"):
        package = _zstd_package()
        return package.ZstdFile(raw) if hasattr(package, "ZstdFile") else _ZstandardReader(raw, package)
    return cast(Reader, raw)


def _zstd_package() -> Any:
    for name in ("compression.zstd", "zstandard"):  # the first comes with Python 3.14
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


class _PollingPipe:
    """A pipe that is waited for in short spells, so that a request to stop is heard between them."""

    def __init__(self, pipe: BinaryIO, stopped: Callable[[], bool]) -> None:
        self._pipe, self._stopped = pipe, stopped

    def read(self, size: int = -1, /) -> bytes:
        while True:
            if select.select([self._pipe], [], [], 0.2)[0]:
                part: bytes | None = self._pipe.read(size)
                if part is not None:
                    return part
            if self._stopped():
                raise KeyboardInterrupt


class _ZstandardReader:
    """The frames of a file one after the other; a last one that is cut off is an error, not an end."""

    def __init__(self, raw: Reader, package: Any) -> None:
        self._raw, self._new_frame = raw, package.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._left = b""
        self._ready = b""

    def read(self, size: int, /) -> bytes:
        while not self._ready:
            block = self._left or self._raw.read(BLOCK >> 4)
            if not block:
                if self._frame is not None:
                    raise EOFError("the last frame has no end")
                return b""
            self._frame = self._frame or self._new_frame()
            self._ready = self._frame.decompress(block)
            self._left = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = None
        taken, self._ready = self._ready[:size], self._ready[size:]
        return taken
