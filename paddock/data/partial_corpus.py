"""The files of a corpus while it is written: opening them alone, going on in them, giving them their names.

A killed process leaves them in one of few states, and a writer can go on from each: still growing; complete, with
some of the names given; or finished, where only whoever keeps the position did not hear of it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from paddock.data.index_file import read_index
from paddock.errors import DataError
from paddock.files import atomic_write, sync_directory

BUFFER = 1 << 20


@dataclass(frozen=True)
class WriterPosition:
    """How far a writer has come."""

    tokens: int = 0
    sequences: int = 0
    documents: int = 0


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
        tokens = 0
        with open(self._paths[1], "rb") as stream:
            for first in range(0, at.sequences, BUFFER):
                sizes = np.fromfile(stream, "<i4", min(BUFFER, at.sequences - first))
                tokens += int(sizes.sum(dtype=np.int64))
        with open(self._paths[2], "rb") as stream:
            stream.seek(8 * max(0, at.documents - 1))
            sequences = int(np.fromfile(stream, "<i8", min(1, at.documents)).sum())
        if (tokens, sequences) != (at.tokens, at.sequences):
            written = f"{at.tokens} in {at.sequences} were written"
            raise self._cannot_go_on(f"its files have {tokens} tokens in {sequences} sequences, but {written}")

    def _cannot_go_on(self, why: str) -> DataError:
        return DataError(f"cannot go on writing {self.prefix}", why=why, fix="start again from the beginning")


def _open(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=BUFFER)


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
