"""What a job writes: an indexed corpus for every key, and the list of lines that were skipped. One job at a time."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from paddock.data.indexed.writer import IndexedWriter, WriterPosition, checksum_of
from paddock.data.preprocess.encoding import EncodedChunk
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.journal import Progress
from paddock.data.preprocess.parsing import BadLine
from paddock.data.tokenizers.remembered import SUFFIX as TOKENIZER
from paddock.errors import DataError
from paddock.files import disk_errors, no_follow


@dataclass(frozen=True)
class WrittenCorpus:
    """One key's corpus."""

    prefix: str
    documents: int
    sequences: int
    tokens: int
    dtype: str


class Outputs:
    """All files of a job, under partial names until they are complete."""

    def __init__(self, job: PreprocessJob, dtype: np.dtype, begin: Progress, keep_partial: bool) -> None:
        self._job, self._dtype, self._keep_partial = job, dtype, keep_partial
        self._list = skipped_list(job)
        self._partial_list = self._list.with_name(f"{self._list.name}.partial")
        with ExitStack() as stack, disk_errors(self._list):
            self._skipped = stack.enter_context(self._open_list(begin.skipped_bytes, begin.skipped_checksum))
            self._skipped_checksum = begin.skipped_checksum
            self._writers = {
                key: stack.enter_context(
                    IndexedWriter(
                        job.output(key), dtype=dtype, resume_at=begin.writers.get(key), keep_partial=keep_partial
                    )
                )
                for key in job.json_keys
            }
            self._stack = stack.pop_all()

    def add(self, encoded: EncodedChunk) -> None:
        """Append the documents of a chunk."""
        for writer, part in zip(self._writers.values(), encoded.keys, strict=True):
            writer.add(part.tokens, part.sizes, part.documents)

    def skip(self, file: str, bad: Sequence[BadLine]) -> None:
        """List lines that were not used."""
        with disk_errors(self._list):
            for problem in bad:
                record = {"file": file, "line": problem.line, "reason": problem.reason}
                line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
                self._skipped_checksum = zlib.crc32(line, self._skipped_checksum)
                self._skipped.write(line)

    def flush(self) -> Progress:
        """Put everything safely on the disk: how far each writer is, and what the list holds."""
        with disk_errors(self._list):
            self._skipped.flush()
            os.fsync(self._skipped.fileno())
        writers = {key: writer.flush() for key, writer in self._writers.items()}
        return Progress(writers=writers, skipped_bytes=self._skipped.tell(), skipped_checksum=self._skipped_checksum)

    def describe(self, positions: dict[str, WriterPosition]) -> list[WrittenCorpus]:
        """What is written when the writers are at these positions."""
        return [
            WrittenCorpus(self._job.output(key), at.documents, at.sequences, at.tokens, self._dtype.name)
            for key, at in positions.items()
        ]

    def __enter__(self) -> Outputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        empty = kind is None and self._skipped.tell() == 0
        self._stack.__exit__(kind, error, trace)  # the corpora take their names here
        if kind is None and not empty:
            os.replace(self._partial_list, self._list)
        elif kind is None:
            for path in (self._partial_list, self._list):  # an older list belongs to what has been replaced
                path.unlink(missing_ok=True)
        elif not self._keep_partial:
            self._partial_list.unlink(missing_ok=True)

    def _open_list(self, length: int, checksum: int) -> BinaryIO:
        if length and not os.path.exists(self._partial_list) and os.path.exists(self._list):
            os.replace(self._list, self._partial_list)  # killed when all had their names already
        stream = open(self._partial_list, "ab", opener=no_follow)  # noqa: SIM115 (the stack closes it)
        if stream.tell() < length or checksum_of(self._partial_list, length) != checksum:
            stream.close()
            raise DataError(
                f"cannot go on with {self._partial_list}",
                why="it is no longer what was written",
                fix="start from the beginning with --restart",
            )
        stream.truncate(length)
        return stream


def skipped_list(job: PreprocessJob) -> Path:
    """The file that lists bad lines, if there are any."""
    return Path(f"{job.output_prefix}.skipped.jsonl")


def check_free(job: PreprocessJob) -> None:
    """Raise if a finished output would be written over without permission."""
    for key in job.json_keys:
        for suffix in (".bin", ".idx", TOKENIZER):
            path = Path(job.output(key) + suffix)
            if os.path.exists(path) and not job.overwrite:
                raise DataError(
                    f"{path} is there already", fix="choose another --output-prefix, or replace it with --overwrite"
                )


def remove_partial(job: PreprocessJob, outputs: Sequence[str]) -> None:
    """Delete what an unfinished job has left of these outputs."""
    parts = ("bin", "sizes", "documents", "idx")
    for name in [*(f"{output}.{part}" for output in outputs for part in parts), skipped_list(job)]:
        Path(f"{name}.partial").unlink(missing_ok=True)


@contextmanager
def exclusive_lock(prefix: str) -> Iterator[None]:
    """Hold `PREFIX.lock`, which the kernel frees even if the process is killed; an error if another job has it."""
    path = Path(f"{prefix}.lock")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _take(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _take(path: Path) -> int:
    while True:
        descriptor = no_follow(str(path), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise DataError(
                f"another `paddock preprocess` is writing {path.with_suffix('')}",
                fix="wait for it, or choose another --output-prefix",
            ) from None
        except OSError:  # a file system without locks
            return descriptor
        # Whoever held the lock may have removed the file between our opening and our locking it.
        if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
