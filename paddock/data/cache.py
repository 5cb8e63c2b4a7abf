"""What takes long to build and is kept for next time: folders, and arrays that every process maps into memory.

A file of arrays is one line of JSON (what it was made from, where its arrays lie, and their checksums; at its end, its
own) with the arrays behind it. Whoever finds none builds it under a lock, which the kernel frees even if the process
is killed; the others wait and then map the same file. It takes its name only when complete. What a file was made from
is compared, and its checksums are taken again before it is used, so that a stale, truncated or damaged one is built
anew. Where no folder can be written, the arrays stay in memory.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import mmap
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from paddock.data.config import DataConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.corpus import index_samples
from paddock.documents import Document, parse_document
from paddock.errors import MachineError
from paddock.files import atomic_write, open_regular, sweep, temporary_folder, user_cache, user_path
from paddock.process import announced

Arrays = dict[str, NDArray[Any]]

SUFFIX = ".arrays"
KEPT = 4
"""Files in a folder, besides those in use."""
HEADER, SUM, ALIGNMENT = 4096, 9, 64
"""Bytes: the line of JSON with the blanks behind it, its checksum at the end, and what the arrays' offsets are
multiples of."""
PATIENCE = 900.0
"""Seconds to wait for another process's build, before building in memory."""


class ArrayEntry(Document):
    """Where an array lies in a file, and what it is."""

    dtype: str
    shape: list[Annotated[int, Field(ge=0)]]
    offset: int = Field(ge=0)
    checksum: int


class ArraysHeader(Document):
    """The line at the beginning of a file."""

    key: dict[str, Any]
    arrays: dict[str, ArrayEntry]


@dataclass(frozen=True)
class ArrayCache:
    """Files of arrays made from one corpus, in the first of the folders that can be used."""

    folders: tuple[Path, ...]
    fingerprint: str

    def get(
        self, key: dict[str, Any], build: Callable[[], Arrays], holds: Callable[[Arrays], bool] = lambda arrays: True
    ) -> Arrays:
        """The arrays that `build` makes, from their file if there is one. `key` says what decides their content.

        Where that is not known beforehand, `holds` tells of arrays from a file whether they are still true.
        """
        key = {**key, "corpus": self.fingerprint}
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24] + SUFFIX
        for folder in self.folders:
            if (found := _read(folder / name, key)) is not None and holds(found):
                return found
        built: Arrays | None = None
        for folder in self.folders:
            with _locked(folder / "lock", PATIENCE) as usable:
                if not usable:
                    continue
                if (found := _read(folder / name, key)) is not None and holds(found):
                    return found
                built = build() if built is None else built
                if _write(folder / name, key, built) and (found := _read(folder / name, key)) is not None:
                    _clean(folder)
                    return found
        return build() if built is None else built


def cache_beside(corpus: IndexedTokens, fallback: Path) -> ArrayCache:
    """A cache in a folder beside the corpus, or else below `fallback`."""
    place = Path(corpus.prefix).absolute()
    elsewhere = f"{place.name}-{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
    return ArrayCache((Path(f"{place}.paddock"), fallback / "arrays" / elsewhere), fingerprint(corpus))


def cache_of_file(data: DataConfig, kind: str, name: str, *content: bytes) -> ArrayCache:
    """A cache of what is made of one file, below the folder `kind`; `content` decides what that is: the file's, or a
    digest of it, and the tokenizer's."""
    place, digest = Path(name).absolute(), hashlib.sha256()
    for piece in content:
        digest.update(piece)
    folder = f"{place.stem}-{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
    return ArrayCache((cache_folder(data) / kind / folder,), digest.hexdigest()[:24])


def fingerprint(corpus: IndexedTokens) -> str:
    """Changes whenever the index file does: its size, its time, and blocks of its content from all over it."""
    status = os.stat(f"{corpus.prefix}.idx")
    digest = hashlib.sha256(repr((status.st_size, status.st_mtime_ns)).encode())
    for piece in index_samples(corpus):
        digest.update(piece)
    return digest.hexdigest()[:24]


def cache_folder(data: DataConfig) -> Path:
    """Where prepared data is kept."""
    return user_cache() if data.cache is None else user_path(data.cache)


def fingerprint_name(*ingredients: object) -> str:
    """What a folder is called that is made of these ingredients: their name, which comes first, and a digest of all."""
    return f"{str(ingredients[0]).split()[0]}-{hashlib.sha256(repr(ingredients).encode()).hexdigest()[:16]}"


def build_folder(folder: Path, build: Callable[[Path], None]) -> None:
    """Make a folder, unless it is there: `build` fills another one, which takes the name when it is complete. Of
    several processes that want it at once, one builds it and the others wait, however long that takes."""
    if os.path.isdir(folder):
        return
    lock = folder.with_name(f".{folder.name}.lock")
    with _locked(lock, patience=math.inf) as usable, temporary_folder(folder) as partial:
        try:
            if not os.path.isdir(folder):
                build(partial)
                os.rename(partial, folder)
        except OSError:
            if not os.path.isdir(folder):  # otherwise, without locks, another job was faster, with the same result
                raise
        finally:
            if usable:
                lock.unlink(missing_ok=True)


def _read(path: Path, key: dict[str, Any]) -> Arrays | None:
    """The arrays of a file, mapped; None if there is no such file or if it cannot be trusted."""
    try:
        with open_regular(path) as stream:
            # Held as long as the mapping, which keeps the file open: nobody removes what is in use.
            _lock(stream, fcntl.LOCK_SH)
            if not os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                return None
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if content[HEADER - SUM : HEADER] != _signature(content[: HEADER - SUM]):
            return None
        header = parse_document(content[: HEADER - SUM], ArraysHeader, str(path))
        if header.key != key:
            return None
        arrays: Arrays = {}
        for name, entry in header.arrays.items():
            array = np.frombuffer(content, entry.dtype, math.prod(entry.shape), entry.offset).reshape(entry.shape)
            if zlib.crc32(array.data) != entry.checksum:
                return None
            arrays[name] = array
        return arrays
    except (OSError, ValueError, TypeError, OverflowError):
        return None


def _write(path: Path, key: dict[str, Any], arrays: Arrays) -> bool:
    entries, offsets, end = {}, [], HEADER
    for name, array in arrays.items():
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        checksum = zlib.crc32(np.ascontiguousarray(array).data)
        entries[name] = {"dtype": array.dtype.str, "shape": array.shape, "offset": offset, "checksum": checksum}
        offsets.append(offset)
        end = offset + array.nbytes
    header = json.dumps({"key": key, "arrays": entries}).encode()
    assert len(header) <= HEADER - SUM, "a key is a handful of numbers"
    header = header.ljust(HEADER - SUM)
    try:
        with atomic_write(path, "wb") as stream:
            stream.write(header + _signature(header))
            for offset, array in zip(offsets, arrays.values(), strict=True):
                stream.write(bytes(offset - stream.tell()))
                stream.write(np.ascontiguousarray(array).data)
    except (OSError, MachineError):
        return False
    return True


def _signature(header: bytes) -> bytes:
    """What ends the header's line: its own checksum."""
    return f"{zlib.crc32(header):08x}\n".encode()


@contextmanager
def _locked(path: Path, patience: float) -> Iterator[bool]:
    """Hold a lock; False if its folder cannot be written, or knows no locks, or if patience ran out."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = open(path, "ab")  # noqa: SIM115 (closed below)
    except OSError:
        yield False
        return
    with stream:
        deadline, taken = time.monotonic() + patience, None
        with announced(f"waiting for another process, which prepares the same data: it holds {path}"):
            while taken is None and time.monotonic() < deadline:
                try:
                    taken = _lock(stream, fcntl.LOCK_EX)
                except BlockingIOError:
                    time.sleep(0.05)
        yield bool(taken)


def _lock(stream: IO[bytes], kind: int) -> bool:
    """Take a lock now, or raise BlockingIOError; False on file systems that have none."""
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _clean(folder: Path) -> None:
    """Remove what killed processes left half written, and the oldest files that nobody uses. Needs the lock."""
    sweep(folder)
    with suppress(OSError):
        files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[KEPT:]:
            with suppress(OSError), open(path, "rb") as stream:
                if _lock(stream, fcntl.LOCK_EX):
                    path.unlink()
