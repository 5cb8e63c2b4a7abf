"""Indexed token files: `PREFIX.bin` holds tokens back to back, `PREFIX.idx` says where each sequence lies.

The format is Megatron-LM's, byte for byte. Opening a corpus checks all that can be known without reading the tokens.
"""

from __future__ import annotations

import mmap
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.data.indexed.index import broken, check_readable, read_index
from paddock.errors import DataError


class IndexedTokens:
    """A memory-mapped corpus. `corpus[i]` is sequence i as an array of tokens.

    Document d is the sequences `documents[d]` to `documents[d + 1] - 1`."""

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = str(prefix)
        index_path, data_path = corpus_files(prefix)
        index = read_index(index_path)
        self.form, self.dtype, self.has_modes = index.form, index.dtype, index.has_modes
        self.sizes, self.pointers, self.documents = index.sizes, index.pointers, index.documents
        with open(data_path, "rb") as stream:
            self.num_bytes = stream.seek(0, 2)
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if self.num_bytes else None
        self._content = np.frombuffer(self._map or b"", np.uint8)
        if len(self) and (end := int(self.pointers[-1]) + int(self.sizes[-1]) * self.dtype.itemsize) > self.num_bytes:
            raise DataError(
                f"{data_path} is truncated",
                why=f"its index reaches to byte {end}, but the file has {self.num_bytes}",
                fix="copy or preprocess it again",
            )
        for finding in check_readable(index, self.num_bytes):
            raise broken(index_path, str(finding))

    @property
    def num_documents(self) -> int:
        return len(self.documents) - 1

    @cached_property
    def num_tokens(self) -> int:
        return int(self.sizes.sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, sequence: int) -> NDArray[np.integer]:
        return self.slice(sequence, 0, self.sizes.item(sequence))

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence, without copying."""
        if not 0 <= start <= stop <= self.sizes.item(sequence):
            raise DataError(
                f"{self.prefix} has no tokens {start} to {stop} in sequence {sequence}",
                why=f"the sequence has {self.sizes[sequence]}",
            )
        width = self.dtype.itemsize
        begin = self.pointers.item(sequence) + start * width
        return self._content[begin : begin + (stop - start) * width].view(self.dtype)

    def read(self, begin: int, end: int) -> NDArray[np.integer]:
        """All tokens of the sequences begin…end, back to back; without copying where the file has them so."""
        sizes, pointers, width = self.sizes[begin:end], self.pointers[begin:end], self.dtype.itemsize
        ends = np.cumsum(sizes, dtype=np.int64)
        if not np.array_equal(pointers - pointers[:1], (ends - sizes) * width):
            return np.concatenate([self[sequence] for sequence in range(begin, end)])
        first, last = (pointers.item(0), pointers.item(0) + ends.item(-1) * width) if len(ends) else (0, 0)
        return self._content[first:last].view(self.dtype)

    def release(self) -> None:
        """Give back the memory of tokens read so far; they are read from the disk again when asked for."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexedTokens, (self.prefix,)


def corpus_files(prefix: str | Path) -> tuple[Path, Path]:
    """The index and the token file of a corpus, which must be there."""
    paths = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    for path in paths:
        if not os.path.isfile(path):
            raise DataError(
                f"there is no {path}",
                why="an indexed corpus is PREFIX.bin and PREFIX.idx",
                fix=f"check the prefix {prefix} (give it without .bin)",
            )
        if not os.access(path, os.R_OK):
            raise DataError(f"{path} cannot be read", why="you may not read it", fix="ask its owner for the permission")
    return paths
