"""Reading an input as plain bytes: files, `.gz`, `.zst`, pipes and standard input."""

from __future__ import annotations

import gzip
import select
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, Protocol, cast

from paddock.data.preprocess.inputs import STANDARD_INPUT, Input
from paddock.errors import MachineError

BLOCK = 1 << 20


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
        with open(place, "rb", buffering=0, closefd=place != 0) as pipe:
            yield OpenInput(_decompressed(source.path, _Patient(pipe, stopped)), None)
        return
    with open(source.path, "rb", buffering=0) as file:
        yield OpenInput(_decompressed(source.path, file), file)


def check_readable(source: Input) -> None:
    """Raise now, before any work, if a package for this kind of file is missing."""
    if source.path.endswith(".zst") and _zstd_package() is None:
        raise MachineError(
            f"{source.path} needs the package zstandard",
            why="this Python cannot read .zst files by itself",
            fix="pip install zstandard, or unpack the file: zstdcat FILE | paddock preprocess --input - …",
        )


def reading_errors() -> tuple[type[Exception], ...]:
    """What a truncated or damaged file raises."""
    package = _zstd_package()
    return (EOFError, OSError, zlib.error, *([package.ZstdError] if package else []))


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


class _Patient:
    """A pipe that is waited for in short spells, so that a request to stop is heard between them."""

    def __init__(self, pipe: BinaryIO, stopped: Callable[[], bool]) -> None:
        self._pipe, self._stopped = pipe, stopped

    def read(self, size: int = -1, /) -> bytes:
        while not select.select([self._pipe], [], [], 0.2)[0]:
            if self._stopped():
                raise KeyboardInterrupt
        return self._pipe.read(size)


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
