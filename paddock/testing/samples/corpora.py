"""Corpora and samples whose every token can be told from all others, in memory and in files; some fail on order.

They can be pickled and imported anywhere, so loader workers can read them too. One corpus is larger than any disk, and
one is written out by hand from the description of the format rather than by our writer.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.language.corpus import Corpus
from paddock.errors import ConfigError


class NumberedCorpus:
    """Documents given as the sizes of their sentences; the tokens are first, first + 1, first + 2, …"""

    def __init__(self, documents: list[list[int]], first: int = 0) -> None:
        self.sizes = np.asarray([size for document in documents for size in document], dtype=np.int32)
        self.documents = np.concatenate([[0], np.cumsum([len(document) for document in documents], dtype=np.int64)])
        self._begins = np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)]) + first

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""
        assert 0 <= start <= stop <= self.sizes[sequence]
        begin = int(self._begins[sequence])
        return np.arange(begin + start, begin + stop)


@dataclass(frozen=True)
class NumberedSamples:
    """Sample i is i; sample `fails_at` fails as `how` says: "bug", "user error", "hang", "no room" (none of it can be
    put into a file or shared memory) or a signal's name."""

    fails_at: int = -1
    how: str = "bug"

    def __getitem__(self, index: int) -> dict[str, int]:
        if index == self.fails_at:
            if self.how == "bug":
                raise KeyError("the shelf is empty")
            if self.how == "user error":
                raise ConfigError("the gate is shut", why="nobody opened it", fix="open it")
            while self.how == "hang":
                time.sleep(0.1)
            if self.how == "no room":
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            else:
                os.kill(os.getpid(), getattr(signal, self.how))
        return {"index": index, "process": os.getpid(), "threads": torch.get_num_threads()}


def stack(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """The samples as one batch."""
    return {name: torch.as_tensor(np.stack([sample[name] for sample in samples])) for name in samples[0]}


class HugeCorpus(NumberedCorpus):
    """Sequences of any size, of which no token is stored: token t of the corpus is t modulo a prime."""

    prime = 999_983

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""
        return super().slice(sequence, start, stop) % self.prime


def tokens_of(corpus: Corpus, document: int) -> list[int]:
    """One document, read sequence by sequence."""
    sequences = range(*corpus.documents[document : document + 2].tolist())
    return [token for at in sequences for token in corpus.slice(at, 0, corpus.sizes.item(at)).tolist()]


def write_corpus(prefix: Path, documents: list[list[int]], vocab: int = 2**20) -> IndexedTokens:
    """The tokens of `NumberedCorpus`, in files."""
    corpus = NumberedCorpus(documents)
    with IndexedWriter(prefix, vocab) as writer:
        for first, sizes in zip(corpus.documents.tolist(), documents, strict=False):
            writer.add_document(*(corpus.slice(first + at, 0, size) for at, size in enumerate(sizes)))
    return IndexedTokens(prefix)


# Two documents, [[1, 2, 3]] and [[4], []], of u16 tokens.
TOKENS = struct.pack("<4H", 1, 2, 3, 4)
INDEX = (
    b"MMIDIDX\x00\x00"
    + struct.pack("<Q", 1)  # version
    + struct.pack("<B", 8)  # u16
    + struct.pack("<Q", 3)  # sequences
    + struct.pack("<Q", 3)  # document borders
    + struct.pack("<3i", 3, 1, 0)  # sizes
    + struct.pack("<3q", 0, 6, 8)  # byte pointers
    + struct.pack("<3q", 0, 1, 3)  # borders
)
LEGACY = (
    b"TNTIDX\x00\x00"
    + struct.pack("<Q", 1)  # version
    + struct.pack("<Q", 8)  # u16
    + struct.pack("<Q", 2)  # bytes of a token
    + struct.pack("<Q", 3)  # items
    + struct.pack("<Q", 3)  # sizes
    + struct.pack("<Q", 3)  # document borders
    + struct.pack("<4q", 0, 1, 2, 3)  # dimension offsets
    + struct.pack("<4q", 0, 3, 4, 4)  # data offsets, in tokens
    + struct.pack("<3q", 3, 1, 0)  # sizes
    + struct.pack("<3q", 0, 1, 3)  # borders
)


def write_raw_corpus(folder: Path, index: bytes = INDEX, tokens: bytes = TOKENS, name: str = "corpus") -> Path:
    """Write a corpus of just these bytes; returns its prefix."""
    for suffix, content in ((".idx", index), (".bin", tokens)):
        path = folder / f"{name}{suffix}"
        path.unlink(missing_ok=True)  # some file systems flush a file that is written over, which is slow
        path.write_bytes(content)
    return folder / name


def patched(content: bytes, position: int, layout: str, value: int) -> bytes:
    """The bytes with a number of another value at some position."""
    packed = struct.pack(layout, value)
    return content[:position] + packed + content[position + len(packed) :]
