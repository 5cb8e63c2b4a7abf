"""Indexed token files: `PREFIX.bin` holds tokens back to back, `PREFIX.idx` says where each sequence lies.

The format is Megatron-LM's, byte for byte (little endian): magic, version, dtype code, counts, then the
sequences' sizes and byte pointers, then the documents' borders. Opening a file checks all that can be known
without reading the tokens.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from paddock.errors import DataError
from paddock.files import disk_errors, sync_directory

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQQ")
DTYPES: dict[int, np.dtype] = {
    code: np.dtype(name).newbyteorder("<")
    for code, name in {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}.items()
}
SMALL_VOCABULARY = 65500
"""Below this many tokens, two bytes are enough for each."""


class IndexedTokens:
    """A memory-mapped corpus. `corpus[i]` is sequence i as an array of tokens."""

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = str(prefix)
        index_path, data_path = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
        for path in (index_path, data_path):
            if not path.is_file():
                raise DataError(
                    f"there is no {path}",
                    why="an indexed corpus is PREFIX.bin and PREFIX.idx",
                    fix=f"check data.path = {prefix} (give it without .bin)",
                )
        size = index_path.stat().st_size
        with open(index_path, "rb") as stream:
            header = stream.read(HEADER.size)
        if not header.startswith(MAGIC):
            raise _broken(index_path, "it does not begin with MMIDIDX, so it is no index of this form")
        if len(header) < HEADER.size:
            raise _broken(index_path, f"it is truncated: {size} bytes, and the header alone has {HEADER.size}")
        _, version, code, num_sequences, num_borders = HEADER.unpack(header)
        if version != 1:
            raise _broken(index_path, f"its version is {version}, and only 1 is known")
        if code not in DTYPES:
            raise _broken(index_path, f"its dtype code is {code}; integer codes are {', '.join(map(str, DTYPES))}")
        needed = HEADER.size + 12 * num_sequences + 8 * num_borders
        # Multimodal files carry one more byte a sequence (its mode), which says nothing about tokens.
        if size not in (needed, needed + num_sequences):
            raise _broken(
                index_path,
                f"{num_sequences} sequences and {num_borders} document borders take {needed} bytes, but it has {size}",
            )
        self.dtype = DTYPES[code]
        index = np.memmap(index_path, mode="r", dtype=np.uint8)
        pointers_at = HEADER.size + 4 * num_sequences
        borders_at = pointers_at + 8 * num_sequences
        self.sizes: NDArray[np.int32] = index[HEADER.size : pointers_at].view("<i4")
        self.pointers: NDArray[np.int64] = index[pointers_at:borders_at].view("<i8")
        self.documents: NDArray[np.int64] = index[borders_at : borders_at + 8 * num_borders].view("<i8")
        self._check(index_path, data_path)
        empty = data_path.stat().st_size == 0
        self._tokens = np.zeros(0, np.uint8) if empty else np.memmap(data_path, mode="r", dtype=np.uint8)

    def _check(self, index_path: Path, data_path: Path) -> None:
        count, length = len(self.sizes), data_path.stat().st_size
        borders = self.documents
        if len(borders) and (borders[0] != 0 or borders[-1] != count or np.any(np.diff(borders) < 0)):
            raise _broken(index_path, f"its document borders do not rise from 0 to {count}")
        if count == 0:
            return
        if int(self.sizes.min()) < 0 or int(self.pointers.min()) < 0:
            raise _broken(index_path, "it has a negative size or pointer")
        end = int((self.pointers + self.sizes.astype(np.int64) * self.dtype.itemsize).max())
        if end > length:
            raise DataError(
                f"{data_path} is truncated",
                why=f"its index reaches to byte {end}, but the file has {length}",
                fix="copy or preprocess it again",
            )

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, sequence: int) -> NDArray[np.integer]:
        return self.slice(sequence, 0, int(self.sizes[sequence]))

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence, without copying."""
        pointer, width = int(self.pointers[sequence]), self.dtype.itemsize
        return self._tokens[pointer + start * width : pointer + stop * width].view(self.dtype)


class IndexedWriter:
    """Writes a corpus; both files take their final names only when it is complete."""

    def __init__(self, prefix: str | Path, vocab: int) -> None:
        self.prefix = str(prefix)
        self._code = 8 if vocab < SMALL_VOCABULARY else 4
        self._dtype = DTYPES[self._code]
        self._partial = [Path(f"{prefix}{suffix}.{os.getpid()}.partial") for suffix in (".bin", ".idx")]
        self._sizes: list[int] = []
        self._borders = [0]
        with disk_errors(prefix):
            self._stream = open(self._partial[0], "wb")  # noqa: SIM115 (closed in __exit__)

    def add_document(self, *sequences: list[int] | NDArray[np.integer]) -> None:
        """Append a document of one or more sequences."""
        for sequence in sequences:
            tokens = np.asarray(sequence, dtype=self._dtype)
            with disk_errors(self.prefix):
                self._stream.write(tokens.tobytes())
            self._sizes.append(len(tokens))
        self._borders.append(len(self._sizes))

    def __enter__(self) -> IndexedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._stream.close()
            for path in self._partial:
                path.unlink(missing_ok=True)

    def _finish(self) -> None:
        sizes = np.asarray(self._sizes, dtype="<i4")
        ends = np.cumsum(sizes, dtype="<i8") * self._dtype.itemsize
        pointers = np.concatenate([np.zeros(min(1, len(ends)), "<i8"), ends[:-1]])
        borders = np.asarray(self._borders, dtype="<i8")
        with disk_errors(self.prefix):
            self._stream.flush()
            os.fsync(self._stream.fileno())
            with open(self._partial[1], "wb") as index:
                index.write(HEADER.pack(MAGIC, 1, self._code, len(sizes), len(borders)))
                for part in (sizes, pointers, borders):
                    index.write(part.tobytes())
                index.flush()
                os.fsync(index.fileno())
        # The index last: a corpus without one is not seen as complete.
        os.replace(self._partial[0], f"{self.prefix}.bin")
        os.replace(self._partial[1], f"{self.prefix}.idx")
        sync_directory(Path(self.prefix).parent)


def _broken(path: Path, why: str) -> DataError:
    return DataError(f"{path} cannot be read", why=why, fix="copy or preprocess it again")
