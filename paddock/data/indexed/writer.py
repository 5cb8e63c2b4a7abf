"""Writing indexed token files in bounded memory, however many documents there are.

Tokens, sizes and document borders go to partial files as they come; at the end the index is streamed from them. A
writer that was killed goes on from its last `flush`, and the corpus is the same, byte for byte. A killed process
leaves its files in one of few states, and a writer can go on from each: still growing; complete, with some of the
names given; or finished, where only whoever keeps the position did not hear of it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from paddock.data.indexed.index import HEADER, LONGEST_SEQUENCE, MAGIC, code_of, dtype_for, read_index
from paddock.documents import Natural
from paddock.errors import DataError
from paddock.files import atomic_write, disk_errors, no_follow, open_regular, sync_directory

CHUNK = 1 << 20


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
        of_tokens, of_sizes, of_documents = at.checksums
        with disk_errors(self.prefix):
            for first in range(0, len(tokens), CHUNK):
                part = np.ascontiguousarray(tokens[first : first + CHUNK], self.dtype)
                of_tokens = _append(self._partial.tokens, part, of_tokens)
            of_sizes = _append(self._partial.sizes, np.ascontiguousarray(sizes, "<i4"), of_sizes)
            ends = at.sequences + np.cumsum(documents, dtype="<i8")
            of_documents = _append(self._partial.documents, ends, of_documents)
        counts = at.tokens + len(tokens), at.sequences + len(sizes), at.documents + len(documents)
        self._at = WriterPosition(*counts, (of_tokens, of_sizes, of_documents))

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
            with open(self._partial.index, "wb", opener=no_follow) as index:
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


@dataclass(frozen=True)
class WriterPosition:
    """How far a writer has come."""

    tokens: Natural = 0
    sequences: Natural = 0
    documents: Natural = 0
    checksums: tuple[Natural, Natural, Natural] = field(default=(0, 0, 0), compare=False)
    """What the partial files held so far: of the tokens, the sizes and the documents."""


class PartialCorpus:
    """Three append-only files: tokens, the sequences' sizes (int32), the documents' ends (int64, in sequences)."""

    def __init__(self, prefix: str, at: WriterPosition, width: int) -> None:
        self.prefix = prefix
        self.index = Path(f"{prefix}.idx.partial")
        self._final_tokens, self._final_index = Path(f"{prefix}.bin"), Path(f"{prefix}.idx")
        self._paths = [Path(f"{prefix}.{part}.partial") for part in ("bin", "sizes", "documents")]
        self._folder = self._final_tokens.parent
        self._folder.mkdir(parents=True, exist_ok=True)
        lengths = [at.tokens * width, at.sequences * 4, at.documents * 8]
        resuming = at != WriterPosition()
        self.tokens = self._open_tokens(resuming)
        try:
            if resuming:
                self._take_back()
                self._check(at, lengths)
            self.sizes, self.documents = (_open(path) for path in self._paths[1:])
            for stream, length in zip((self.tokens, self.sizes, self.documents), lengths, strict=True):
                stream.truncate(length)
                stream.seek(length)
        except BaseException:
            self.tokens.close()
            raise

    def flush(self) -> None:
        """Return when all is safely on the disk."""
        for stream in (self.tokens, self.sizes, self.documents):
            stream.flush()
            os.fsync(stream.fileno())
        sync_directory(self._folder)

    def publish(self) -> None:
        """Give the tokens and the finished index their names. The rows go first: the lock leaves with the tokens."""
        for path in self._paths[1:]:
            path.unlink()
        self._final_index.unlink(missing_ok=True)  # an older index must not meet the new tokens
        os.replace(self._paths[0], self._final_tokens)
        os.replace(self.index, self._final_index)
        sync_directory(self._folder)

    def delete(self) -> None:
        """Remove everything unfinished; the tokens last, since their lock keeps others off."""
        for path in (self.index, *reversed(self._paths)):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        for stream in (self.tokens, self.sizes, self.documents):
            with suppress(OSError):  # what a full disk refuses was reported when it was written
                stream.close()

    def _open_tokens(self, resuming: bool) -> BinaryIO:
        if not resuming:
            return _open_alone(self._paths[0])
        for path in (self._paths[0], self._final_tokens):
            if path.is_file():
                return _open_alone(path)
        raise self._cannot_go_on(f"there is no {self._paths[0]}")

    def _take_back(self) -> None:
        """Undo the last steps of a writer that was killed while it published, or after."""
        rows = self._paths[1:]
        finished = [path for path in (self.index, self._final_index) if path.is_file()]
        if finished and not all(path.is_file() for path in rows):
            index = read_index(finished[0])
            for path, values in zip(rows, (index.sizes.data, index.documents[1:].data), strict=True):
                with atomic_write(path, "wb") as stream:
                    stream.write(values)
        if not self._paths[0].is_file():
            self._final_index.unlink(missing_ok=True)
            os.replace(self._final_tokens, self._paths[0])

    def _check(self, at: WriterPosition, lengths: list[int]) -> None:
        for path, needed in zip(self._paths, lengths, strict=True):
            size = path.stat().st_size if path.is_file() else 0
            if size < needed:
                raise self._cannot_go_on(f"{path} has {size} bytes, but {needed} were written")
        for path, needed, checksum in zip(self._paths, lengths, at.checksums, strict=True):
            if checksum_of(path, needed) != checksum:
                raise self._cannot_go_on(f"{path} is no longer what was written")

    def _cannot_go_on(self, why: str) -> DataError:
        return DataError(f"cannot go on writing {self.prefix}", why=why, fix="start again from the beginning")


def checksum_of(path: Path, length: int) -> int:
    """Of the beginning of a file."""
    checksum = 0
    with open_regular(path) as stream:
        while length > 0 and (part := stream.read(min(length, CHUNK))):
            checksum = zlib.crc32(part, checksum)
            length -= len(part)
    return checksum


def _append(stream: BinaryIO, values: NDArray[np.integer], checksum: int) -> int:
    """Write some values behind those that the checksum is of, and return that of all."""
    stream.write(values.data)
    return zlib.crc32(values.data, checksum)


def _open(path: Path) -> BinaryIO:
    return os.fdopen(no_follow(str(path), os.O_RDWR | os.O_CREAT), "r+b", buffering=CHUNK)


def _open_alone(path: Path) -> BinaryIO:
    """Open a file for writing, and keep other writers off it until it is closed."""
    while True:
        stream = _open(path)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            raise DataError(f"another process is writing {path}", fix="wait for it, or choose another name") from None
        except OSError:  # a file system without locks
            return stream
        # The writer before may have renamed or removed the file between our opening and our locking it.
        if path.is_file() and os.path.samestat(os.stat(path), os.fstat(stream.fileno())):
            return stream
        stream.close()
