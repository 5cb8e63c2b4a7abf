"""`PREFIX.idx`: where each sequence lies in `PREFIX.bin`, and which sequences are a document; read and checked.

There are two forms, both Megatron-LM's and little endian. The mmap form is what everybody writes today; the legacy
form (`lazy` and `cached`) is only read. The header's counts are held against the file's real size before anything is
mapped, so a truncated or foreign file costs no memory.

What the arrays say is checked block by block (sequences outside the token file, borders that do not rise, gaps), so
that a block stays in the processor's cache and memory stays small: ten million sequences take about 0.05 s.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.errors import DataError

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
LEGACY_MAGIC = b"TNTIDX\x00\x00"
LEGACY_HEADER = struct.Struct("<8sQQQQQQ")
DTYPES: dict[int, np.dtype] = {
    code: np.dtype(name).newbyteorder("<")
    for code, name in {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}.items()
}
SMALL_VOCABULARY = 65500
"""Below this many tokens, two bytes are enough for each."""
LONGEST_SEQUENCE = 2**31 - 1
"""A size is an int32."""
BLOCK = 1 << 15
"""Sequences that are checked at once."""
MAX_EXAMPLES = 5
"""Of a finding, that are described."""


@dataclass(frozen=True)
class IndexFile:
    """An index as arrays: sizes in tokens, pointers in bytes, and the documents' borders in sequences."""

    path: Path
    form: Literal["mmap", "legacy"]
    dtype: np.dtype
    sizes: NDArray[np.int32]
    pointers: NDArray[np.int64]
    documents: NDArray[np.int64]
    has_modes: bool
    """Multimodal files carry one more byte a sequence, which says nothing about tokens."""


def read_index(path: Path) -> IndexFile:
    """Map an index of either form into memory."""
    with open(path, "rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        start = stream.read(LEGACY_HEADER.size)
        if start.startswith(LEGACY_MAGIC):
            return _read_legacy(path, stream, start, size)
        return _read_mmap(path, stream, start, size)


def dtype_for(vocab: int) -> np.dtype:
    """The type that every writer of this format chooses for a vocabulary."""
    return DTYPES[8 if vocab < SMALL_VOCABULARY else 4]


def code_of(dtype: np.dtype) -> int:
    """The number that stands for an integer type in an index."""
    return {known: code for code, known in DTYPES.items()}[dtype]


def broken(path: Path, why: str) -> DataError:
    """The error of a file that cannot be what its name says."""
    return DataError(f"{path} cannot be read", why=why, fix="copy or preprocess it again")


def _read_mmap(path: Path, stream: BinaryIO, start: bytes, size: int) -> IndexFile:
    if not start.startswith(MAGIC):
        raise broken(path, "it does not begin with MMIDIDX or TNTIDX, so it is no index of a corpus")
    if size < HEADER.size:
        raise broken(path, f"it is truncated: {size} bytes, and the header alone has {HEADER.size}")
    _, version, code, num_sequences, num_borders = HEADER.unpack(start[: HEADER.size])
    dtype = _known(path, version, code)
    needed = HEADER.size + 12 * num_sequences + 8 * num_borders
    if size not in (needed, needed + num_sequences):
        counts = f"{num_sequences} sequences and {num_borders} document borders"
        raise broken(path, f"{counts} take {needed} bytes, but it has {size}")
    content = _map(stream)
    pointers_at = HEADER.size + 4 * num_sequences
    borders_at = pointers_at + 8 * num_sequences
    return IndexFile(
        path=path,
        form="mmap",
        dtype=dtype,
        sizes=content[HEADER.size : pointers_at].view("<i4"),
        pointers=content[pointers_at:borders_at].view("<i8"),
        documents=content[borders_at:needed].view("<i8"),
        has_modes=size != needed,
    )


def _read_legacy(path: Path, stream: BinaryIO, start: bytes, size: int) -> IndexFile:
    if size < LEGACY_HEADER.size:
        raise broken(path, f"it is truncated: {size} bytes, and the header alone has {LEGACY_HEADER.size}")
    _, version, code, width, num_items, num_sizes, num_borders = LEGACY_HEADER.unpack(start)
    dtype = _known(path, version, code)
    if width != dtype.itemsize:
        raise broken(path, f"its tokens are said to have {width} bytes, but {dtype.name} has {dtype.itemsize}")
    needed = LEGACY_HEADER.size + 8 * (2 * (num_items + 1) + num_sizes + num_borders)
    if size != needed:
        counts = f"{num_items} items, {num_sizes} sizes and {num_borders} document borders"
        raise broken(path, f"{counts} take {needed} bytes, but it has {size}")
    longs = _map(stream)[LEGACY_HEADER.size :].view("<i8")
    dimensions, offsets, sizes, documents = np.split(
        longs, np.cumsum([num_items + 1, num_items + 1, num_sizes], dtype=np.int64)
    )
    # An item is a tensor: its sizes are those between two dimension offsets. One of tokens has exactly one.
    if num_sizes != num_items or not np.array_equal(dimensions, np.arange(num_items + 1)):
        raise broken(path, "its dimension offsets do not count 0, 1, 2, …: its items are no rows of tokens")
    wrong = np.flatnonzero((sizes < 0) | (sizes > LONGEST_SEQUENCE) | (np.diff(offsets) != sizes))
    if len(wrong):
        item = int(wrong[0])
        begin, end = offsets[item : item + 2].tolist()
        raise broken(path, f"sequence {item} has {sizes[item]} tokens, but lies at {begin} to {end} in the .bin")
    if not 0 <= int(offsets[0]) <= int(offsets[-1]) < 2**60:
        raise broken(path, f"its data offsets reach from {offsets[0]} to {offsets[-1]}")
    return IndexFile(
        path=path,
        form="legacy",
        dtype=dtype,
        sizes=sizes.astype("<i4"),
        pointers=offsets[:-1] * width,
        documents=documents,
        has_modes=False,
    )


def _known(path: Path, version: int, code: int) -> np.dtype:
    if version != 1:
        raise broken(path, f"its version is {version}, and only 1 is known")
    if code not in DTYPES:
        raise broken(path, f"its dtype code is {code}; integer codes are {', '.join(map(str, DTYPES))}")
    return DTYPES[code]


def _map(stream: BinaryIO) -> NDArray[np.uint8]:
    # As a plain array: slicing a numpy.memmap costs several times as much.
    return np.asarray(np.memmap(stream, mode="r", dtype=np.uint8))


@dataclass(frozen=True)
class Finding:
    """One kind of damage: what it is, how often it occurs, and where it does first."""

    what: str
    count: int
    examples: tuple[str, ...] = ()

    def __add__(self, other: Finding) -> Finding:
        examples = (self.examples + other.examples)[:MAX_EXAMPLES]
        return Finding(self.what, self.count + other.count, examples)

    def __str__(self) -> str:
        if not self.examples:
            return self.what
        more = self.count - len(self.examples)
        return f"{self.what}: " + "; ".join(self.examples) + (f"; and {more:,} more" if more else "")


def found(what: str, where: NDArray[np.intp], describe: Callable[[int], str]) -> Finding:
    """A finding at several places, of which the first are described."""
    return Finding(what, len(where), tuple(describe(int(place)) for place in where[:MAX_EXAMPLES]))


def check_readable(index: IndexFile, length: int) -> Iterator[Finding]:
    """What would make a reader go astray, where the token file has `length` bytes."""
    yield from _check_borders(index)
    width = index.dtype.itemsize
    for first in range(0, len(index.sizes), BLOCK):
        sizes, pointers = index.sizes[first : first + BLOCK], index.pointers[first : first + BLOCK]
        ends = pointers + np.multiply(sizes, width, dtype=np.int64)  # a sum that overflows is below zero
        if min(sizes.min(), pointers.min(), ends.min()) < 0 or ends.max() > length:
            outside = (sizes < 0) | (pointers < 0) | (ends < 0) | (ends > length)
            yield found(
                f"sequences outside the {length} bytes of the .bin",
                first + np.flatnonzero(outside),
                lambda i: f"sequence {i} has {index.sizes[i]} tokens from byte {index.pointers[i]}",
            )


def check_tidy(index: IndexFile, length: int) -> Iterator[Finding]:
    """What a reader can live with, but no writer makes: gaps, overlaps, bytes that belong to no sequence."""
    for first in range(0, len(index.sizes), BLOCK):
        sizes, pointers = index.sizes[first : first + BLOCK], index.pointers[first : first + BLOCK]
        ends = pointers + np.multiply(sizes, index.dtype.itemsize, dtype=np.int64)
        astray = pointers != np.concatenate([[_end(index, first - 1)], ends[:-1]])
        if astray.any():
            yield found(
                "sequences that do not begin where the one before ended",
                first + np.flatnonzero(astray),
                lambda i: f"sequence {i} begins at byte {index.pointers[i]}, not {_end(index, i - 1)}",
            )
    if (unused := length - _end(index, len(index.sizes) - 1)) > 0:
        yield Finding(f"the last {unused} bytes of the .bin belong to no sequence", 1)


def _end(index: IndexFile, sequence: int) -> int:
    """The byte after a sequence; 0 before the first."""
    if sequence < 0:
        return 0
    return index.pointers.item(sequence) + index.sizes.item(sequence) * index.dtype.itemsize


def _check_borders(index: IndexFile) -> Iterator[Finding]:
    borders, count = index.documents, len(index.sizes)
    if not len(borders):
        yield Finding("there are no document borders", 1)
        return
    if borders[0] != 0 or borders[-1] != count:
        yield Finding(f"document borders go from {borders[0]} to {borders[-1]}, not from 0 to {count}", 1)
    for first in range(0, len(borders), BLOCK):
        part = borders[first : first + BLOCK + 1]
        falling = part[1:] < part[:-1]
        if falling.any():
            yield found(
                "documents that end before they begin",
                first + np.flatnonzero(falling),
                lambda i: f"document {i} is sequences {borders[i]} to {borders[i + 1]}",
            )
