"""Reading a whole corpus again, and checking everything that is known about it.

Opening a corpus checks that it can be read. This also checks that nothing lies between the sequences or after them,
that every token is one of the vocabulary, and gives checksums by which copies can be compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from paddock.data.indexed.index import Finding, IndexFile, check_readable, check_tidy, found, read_index
from paddock.data.indexed.reader import corpus_files
from paddock.errors import DataError

CHUNK = 1 << 23
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Verification:
    """What was found in a corpus; without findings it is sound. Checksums are those that `sha256sum` prints."""

    prefix: str
    findings: tuple[Finding, ...] = ()
    form: str = ""
    dtype: str = ""
    documents: int = 0
    sequences: int = 0
    tokens: int = 0
    largest_token: int | None = None
    sha256: dict[str, str] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not self.findings


def verify(prefix: str | Path, vocab_size: int | None, progress: Progress) -> Verification:
    """Read both files of a corpus from end to end. `progress` hears of the bytes as they are read."""
    try:
        index_path, data_path = corpus_files(prefix)
        index = read_index(index_path)
    except DataError as error:
        return Verification(str(prefix), findings=(_told(error),))
    length = data_path.stat().st_size
    findings = [*check_readable(index, length), *check_tidy(index, length)]
    tokens = TokenCheck(index, vocab_size, located=not findings)
    checksums: dict[str, str] = {}
    try:
        checksums[index_path.name] = _checksum(_chunks(index_path, progress))
        checksums[data_path.name] = _checksum(tokens.watch(_chunks(data_path, progress)))
    except DataError as error:
        findings.append(_told(error))
    return Verification(
        prefix=str(prefix),
        findings=_merged([*findings, *tokens.findings]),
        form=index.form,
        dtype=index.dtype.name,
        documents=max(0, len(index.documents) - 1),
        sequences=len(index.sizes),
        tokens=int(index.sizes.sum(dtype=np.int64)),
        largest_token=tokens.largest,
        sha256=checksums,
    )


class TokenCheck:
    """Looks at tokens as they pass: each must be one of the vocabulary, and none may be below zero."""

    def __init__(self, index: IndexFile, vocab_size: int | None, located: bool) -> None:
        self.findings: list[Finding] = []
        self.largest: int | None = None
        self._index, self._located = index, located
        self._limit = np.iinfo(index.dtype).max if vocab_size is None else vocab_size - 1
        self._what = "tokens below zero" if vocab_size is None else f"tokens outside the vocabulary of {vocab_size}"

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass the chunks on, each looked at."""
        width, position = self._index.dtype.itemsize, 0
        for chunk in chunks:
            tokens = np.frombuffer(chunk, self._index.dtype, len(chunk) // width)
            if len(tokens):
                self._look(tokens, position)
            position += len(tokens)
            yield chunk

    def _look(self, tokens: NDArray[np.integer], position: int) -> None:
        smallest, largest = int(tokens.min()), int(tokens.max())
        self.largest = largest if self.largest is None else max(self.largest, largest)
        if smallest < 0 or largest > self._limit:
            wrong = np.flatnonzero((tokens < 0) | (tokens > self._limit))
            self.findings.append(
                found(self._what, wrong, lambda i: f"{tokens[i]} at {self._locate(position + i)}"),
            )

    def _locate(self, position: int) -> str:
        index, byte = self._index, position * self._index.dtype.itemsize
        if not self._located:
            return f"byte {byte}"
        sequence = int(np.searchsorted(index.pointers, byte, side="right")) - 1
        document = int(np.searchsorted(index.documents, sequence, side="right")) - 1
        offset = (byte - index.pointers.item(sequence)) // index.dtype.itemsize
        return f"position {offset} of sequence {sequence} (document {document})"


def _chunks(path: Path, progress: Progress) -> Iterator[bytes]:
    # By reading, not by mapping: a bad disk is then an error, and not a signal that ends the process.
    done = 0
    with open(path, "rb") as stream:
        while chunk := _read(stream, path, done):
            yield chunk
            progress(len(chunk))
            done += len(chunk)


def _read(stream: BinaryIO, path: Path, position: int) -> bytes:
    try:
        return stream.read(CHUNK)
    except OSError as error:
        raise DataError(f"{path} cannot be read from byte {position} on", why=error.strerror or str(error)) from error


def _checksum(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _told(error: DataError) -> Finding:
    return Finding(": ".join(filter(None, (error.what, error.why))), 1)


def _merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of one kind, from several blocks, as one."""
    kinds: dict[str, Finding] = {}
    for finding in findings:
        kinds[finding.what] = kinds[finding.what] + finding if finding.what in kinds else finding
    return tuple(kinds.values())
