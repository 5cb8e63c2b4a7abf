"""A look into a corpus: how much there is, how long documents are, and what some of them say."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import dropwhile, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paddock.data.indexed.reader import IndexedTokens
from paddock.data.tokenizers.load import Tokenizer
from paddock.errors import DataError, bad_value

BLOCK = 1 << 16
SAMPLE_TOKENS = 100
SAMPLE_IDS = 20
"""What is shown of a document as text, and as mere numbers."""
SHORT = 1 << 20
"""Lengths below are counted one by one. A longer one is kept as it is: of those no corpus has many."""


@dataclass(frozen=True)
class DocumentSample:
    """The beginning of a document."""

    document: int
    tokens: int
    ids: tuple[int, ...]
    text: str | None


@dataclass(frozen=True)
class Inspection:
    """What a corpus holds."""

    prefix: str
    form: str
    dtype: str
    documents: int
    sequences: int
    tokens: int
    bytes: int
    index_bytes: int
    document_lengths: dict[str, float]
    sequence_lengths: dict[str, float]
    histogram: list[LengthRange]
    """How many documents have so many tokens."""
    samples: list[DocumentSample]


def inspect(prefix: str | Path, samples: int, tokenizer: Tokenizer | None) -> Inspection:
    """Count a corpus, and read the beginnings of `samples` documents, spread over it."""
    if samples < 0:
        raise bad_value("--documents", samples, "it is the number of documents to show", "0 shows none")
    corpus = IndexedTokens(prefix)
    documents, sequences = Lengths(), Lengths()
    for first in range(0, corpus.num_documents, BLOCK):
        borders = corpus.documents[first : first + BLOCK + 1]
        sizes = corpus.sizes[borders[0] : borders[-1]]
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        documents.add(np.diff(ends[borders - borders[0]]))
        sequences.add(sizes)
    chosen = np.unique(np.linspace(0, corpus.num_documents - 1, min(samples, corpus.num_documents)).astype(np.int64))
    return Inspection(
        prefix=corpus.prefix,
        form=corpus.form,
        dtype=corpus.dtype.name,
        documents=documents.count,
        sequences=sequences.count,
        tokens=documents.total,
        bytes=corpus.num_bytes,
        index_bytes=Path(f"{prefix}.idx").stat().st_size,
        document_lengths=documents.summary(),
        sequence_lengths=sequences.summary(),
        histogram=documents.histogram(),
        samples=[_sample(corpus, document, tokenizer) for document in chosen.tolist()],
    )


def _sample(corpus: IndexedTokens, document: int, tokenizer: Tokenizer | None) -> DocumentSample:
    begin, end = corpus.documents[document : document + 2].tolist()
    most = SAMPLE_IDS if tokenizer is None else SAMPLE_TOKENS
    ids: list[int] = []
    for sequence in range(begin, end):
        ids += corpus.slice(sequence, 0, min(corpus.sizes.item(sequence), most - len(ids))).tolist()
        if len(ids) == most:
            break
    if tokenizer is not None and ids and not 0 <= min(ids) <= max(ids) < tokenizer.vocab_size:
        raise DataError(
            f"the tokenizer does not fit {corpus.prefix}",
            why=f"document {document} has token {max(ids)}, but the tokenizer has {tokenizer.vocab_size} tokens",
            fix="give the one it was made with, or see the numbers alone with --documents 0",
        )
    tokens = int(corpus.sizes[begin:end].sum(dtype=np.int64))
    return DocumentSample(document, tokens, tuple(ids), None if tokenizer is None else tokenizer.decode(ids))


@dataclass(frozen=True)
class LengthRange:
    """How many lengths lie between two, both included."""

    low: int
    high: int
    count: int


@dataclass
class Lengths:
    """Exact statistics and a histogram of lengths, added in any number of parts, in bounded memory."""

    count: int = 0
    total: int = 0
    _short: NDArray[np.int64] = field(default_factory=lambda: np.zeros(SHORT, np.int64))
    _long: list[int] = field(default_factory=list)

    def add(self, lengths: NDArray[np.integer]) -> None:
        self.count += len(lengths)
        self.total += int(lengths.sum(dtype=np.int64))
        short = lengths[lengths < SHORT]
        counts = np.bincount(short)
        self._short[: len(counts)] += counts
        self._long += lengths[lengths >= SHORT].tolist()

    def quantile(self, fraction: float) -> int:
        """The smallest length that at least this fraction of all does not exceed."""
        rank = max(1, int(np.ceil(fraction * self.count)))
        below = np.cumsum(self._short)
        if rank <= below[-1]:
            return int(np.searchsorted(below, rank))
        return sorted(self._long)[rank - int(below[-1]) - 1]

    def summary(self) -> dict[str, float]:
        """Shortest, mean, median, and so on; empty without lengths."""
        if not self.count:
            return {}
        quantiles = {"shortest": 0.0, "median": 0.5, "90%": 0.9, "99%": 0.99, "longest": 1.0}
        return {"mean": self.total / self.count} | {name: self.quantile(at) for name, at in quantiles.items()}

    def histogram(self) -> list[LengthRange]:
        """How many are 0, 1, 2–3, 4–7, 8–15 …, from the shortest to the longest."""
        if not self.count:
            return []
        edges = [0, *(1 << power for power in range(max(1, self.quantile(1.0)).bit_length() + 1))]
        below = np.concatenate([[0], np.cumsum(self._short)])
        long = np.sort(np.array(self._long, np.int64))
        reached = [int(below[min(edge, SHORT)]) + int(np.searchsorted(long, edge)) for edge in edges]
        ranges = [
            LengthRange(low, high - 1, more - less)
            for (low, high), (less, more) in zip(pairwise(edges), pairwise(reached), strict=True)
        ]
        return list(dropwhile(lambda part: not part.count, ranges))
