"""Writing indexed token files in bounded memory, however many documents there are.

Tokens, sizes and document borders go to partial files as they come; at the end the index is streamed from them. A
writer that was killed goes on from its last `flush`, and the corpus is the same, byte for byte.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from paddock.data.index_file import HEADER, LONGEST_SEQUENCE, MAGIC, code_of, dtype_for
from paddock.data.partial_corpus import PartialCorpus, WriterPosition
from paddock.errors import DataError
from paddock.files import disk_errors

CHUNK = 1 << 20

__all__ = ["IndexedWriter", "WriterPosition"]


class IndexedWriter:
    """Writes a corpus; both files take their final names only when it is complete, the index last.

    `vocab` chooses the type of the tokens as every writer of the format does, or `dtype` names it. Leaving the `with`
    block by an error deletes the partial files, unless `keep_partial`; `resume_at` goes on in them, at a position that
    `flush` has returned."""

    def __init__(
        self,
        prefix: str | Path,
        vocab: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        resume_at: WriterPosition | None = None,
        keep_partial: bool = False,
    ) -> None:
        assert (vocab is None) != (dtype is None), "either of them chooses the type"
        self.prefix = str(prefix)
        self.dtype = np.dtype(dtype).newbyteorder("<") if vocab is None else dtype_for(vocab)
        self._code = code_of(self.dtype)
        self._at = resume_at or WriterPosition()
        self._keep_partial = keep_partial
        with disk_errors(prefix):
            self._partial = PartialCorpus(self.prefix, self._at, self.dtype.itemsize)

    def add_document(self, *sequences: Sequence[int] | NDArray[np.integer]) -> None:
        """Append a document of some sequences."""
        none = np.zeros(0, self.dtype)
        arrays = [np.asarray(sequence) if len(sequence) else none for sequence in sequences]
        sizes = np.array([len(array) for array in arrays], np.int64)
        self.add(np.concatenate(arrays or [none]), sizes, np.array([len(arrays)]))

    def add(self, tokens: NDArray[np.integer], sizes: NDArray[np.integer], documents: NDArray[np.integer]) -> None:
        """Append many documents: tokens back to back, the size of each sequence, the sequences of each document."""
        assert sizes.sum(dtype=np.int64) == len(tokens) and documents.sum(dtype=np.int64) == len(sizes)
        self._check(tokens, sizes)
        at = self._at
        with disk_errors(self.prefix):
            for first in range(0, len(tokens), CHUNK):
                self._partial.tokens.write(np.ascontiguousarray(tokens[first : first + CHUNK], self.dtype).data)
            self._partial.sizes.write(np.ascontiguousarray(sizes, "<i4").data)
            self._partial.documents.write((at.sequences + np.cumsum(documents, dtype="<i8")).data)
        self._at = WriterPosition(at.tokens + len(tokens), at.sequences + len(sizes), at.documents + len(documents))

    def flush(self) -> WriterPosition:
        """Put all so far safely on the disk, and say how much it is."""
        with disk_errors(self.prefix):
            self._partial.flush()
        return self._at

    def __enter__(self) -> IndexedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        complete = False
        try:
            if kind is None:
                self._finish()
                complete = True
        finally:
            if not complete and not self._keep_partial:
                self._partial.delete()
            self._partial.close()

    def _finish(self) -> None:
        self.flush()
        with disk_errors(self.prefix):
            with open(self._partial.index, "wb") as index:
                self._write_index(index)
                index.flush()
                os.fsync(index.fileno())
            self._partial.publish()

    def _write_index(self, index: BinaryIO) -> None:
        index.write(HEADER.pack(MAGIC, 1, self._code, self._at.sequences, self._at.documents + 1))
        sizes, documents, width = self._partial.sizes, self._partial.documents, self.dtype.itemsize
        sizes.seek(0)
        shutil.copyfileobj(sizes, index, CHUNK)
        sizes.seek(0)
        begin = 0
        while part := sizes.read(4 * CHUNK):
            lengths = np.frombuffer(part, "<i4") * np.int64(width)
            ends = begin + np.cumsum(lengths, dtype="<i8")
            index.write((ends - lengths).data)
            begin = int(ends[-1])
        index.write(bytes(8))
        documents.seek(0)
        shutil.copyfileobj(documents, index, CHUNK)

    def _check(self, tokens: NDArray[np.integer], sizes: NDArray[np.integer]) -> None:
        if len(sizes) and int(sizes.max()) > LONGEST_SEQUENCE:
            raise DataError(
                f"a sequence of {int(sizes.max())} tokens cannot be written to {self.prefix}",
                why=f"the format counts them in 32 bits, so {LONGEST_SEQUENCE} is the most",
                fix="split the document",
            )
        if not len(tokens) or np.can_cast(tokens.dtype, self.dtype):
            return
        if tokens.dtype.kind not in "iu":
            raise DataError(f"tokens for {self.prefix} are no integers of 64 bits", why=f"the first is {tokens[0]}")
        limits = np.iinfo(self.dtype)
        for token in (int(tokens.min()), int(tokens.max())):
            if not limits.min <= token <= limits.max:
                raise DataError(
                    f"token {token} cannot be written to {self.prefix}.bin",
                    why=f"its type is {self.dtype.name}, which holds {limits.min} to {limits.max}",
                    fix="check that the vocabulary size is that of the tokenizer",
                )
