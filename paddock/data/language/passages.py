"""Passages: consecutive sentences of one document, as many as fit; what span corruption and masking read.

A corpus with split sentences has documents of several sequences; each is a sentence. A passage takes whole
sentences up to its length and never crosses a document's border; a longer sentence (or a document that was not
split) is cut. Every token lies in exactly one passage. An epoch is every passage once, in an order that depends on
(seed, epoch) only, and what a sample draws depends on (seed, sample index) only: whoever asks, in whatever order,
gets the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.data.cache import ArrayCache, Arrays
from paddock.data.language.corpus import Corpus, Sample, sequences_of
from paddock.errors import DataError

LARGE = 1 << 21
"""Sequences from which on an index is worth a file."""
BLOCK = 1 << 18
"""Sequences that are indexed at once, so that memory does not grow with the corpus."""
ORDER, TRAINING, EVALUATION = range(3)
"""What a random stream is for; a part of its seed."""


class Passages:
    """The passages of some documents, each of `shortest` to `longest` tokens; shorter ones are left out."""

    def __init__(
        self, corpus: Corpus, documents: range, longest: int, shortest: int = 1, cache: ArrayCache | None = None
    ) -> None:
        self._made_from = (corpus, documents, longest, shortest, cache)
        self._corpus = corpus
        if cache is None or len(sequences_of(corpus, documents)) < LARGE:
            arrays = _index(corpus, documents, longest, shortest)
        else:
            parts = {"documents": [documents.start, documents.stop], "longest": longest, "shortest": shortest}
            arrays = cache.get({"kind": "passages 1", **parts}, lambda: _index(corpus, documents, longest, shortest))
        self._sequences, self._offsets, self.lengths = arrays["sequences"], arrays["offsets"], arrays["lengths"]

    def __reduce__(self) -> tuple[Any, ...]:
        return Passages, self._made_from

    def __len__(self) -> int:
        return len(self.lengths)

    def read(self, passage: int) -> list[NDArray[np.integer]]:
        """The tokens of one passage, sentence by sentence."""
        sequence, start = int(self._sequences[passage]), int(self._offsets[passage])
        missing, sizes = int(self.lengths[passage]), self._corpus.sizes
        pieces = []
        while missing:
            stop = min(sizes.item(sequence), start + missing)
            if stop > start:
                pieces.append(self._corpus.slice(sequence, start, stop))
            missing -= stop - start
            sequence, start = sequence + 1, 0
        return pieces

    def document_of(self, passage: int) -> range:
        """All passages of the document that this one lies in."""
        borders = self._corpus.documents
        document = int(np.searchsorted(borders, self._sequences[passage], side="right")) - 1
        first, after = np.searchsorted(self._sequences, borders[document : document + 2])
        return range(int(first), int(after))

    def elsewhere(self, passage: int, generator: np.random.Generator) -> int:
        """A random passage of any other document."""
        here = self.document_of(passage)
        other = int(generator.integers(len(self) - len(here)))
        return other if other < here.start else other + len(here)


class Objective(Protocol):
    """What is learnt from a passage: how long it may be, and the sample it becomes."""

    longest: int
    shortest: int

    def check(self, passages: Passages) -> None:
        """Raise if these passages cannot be learnt from."""

    def sample(self, passages: Passages, passage: int, generator: np.random.Generator) -> Sample: ...


class TrainingPassages:
    """An endless sequence of training samples."""

    def __init__(
        self, corpus: Corpus, documents: range, objective: Objective, seed: int, *, cache: ArrayCache | None = None
    ) -> None:
        self._objective, self._seed = objective, seed
        self._passages = Passages(corpus, documents, objective.longest, objective.shortest, cache)
        self.tokens = int(self._passages.lengths.sum(dtype=np.int64))
        if not len(self._passages):
            raise DataError(
                "the training part is empty",
                why=f"its {len(documents)} documents hold no passage of {objective.shortest} tokens",
                fix="give a larger corpus, or a data.split with more weight on training",
            )
        objective.check(self._passages)
        self._shuffled: tuple[int, NDArray[np.integer]] | None = None

    @property
    def samples_per_epoch(self) -> float:
        return len(self._passages)

    def __getitem__(self, index: int) -> Sample:
        epoch, place = divmod(index, len(self._passages))
        generator = np.random.default_rng([self._seed, TRAINING, index])
        return self._objective.sample(self._passages, int(self._order(epoch)[place]), generator)

    def _order(self, epoch: int) -> NDArray[np.integer]:
        if self._shuffled is None or self._shuffled[0] != epoch:
            count = len(self._passages)
            order: NDArray[np.integer] = np.arange(count).astype(np.int32 if count < 1 << 31 else np.int64)
            np.random.default_rng([self._seed, ORDER, epoch]).shuffle(order)
            self._shuffled = epoch, order
        return self._shuffled[1]

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_shuffled": None}


class EvaluationPassages(Sequence[Sample]):
    """Every passage of some documents once, in their order, always with the same masks."""

    def __init__(
        self, corpus: Corpus, documents: range, objective: Objective, seed: int, *, cache: ArrayCache | None = None
    ) -> None:
        self._objective, self._seed = objective, seed
        self._passages = Passages(corpus, documents, objective.longest, objective.shortest, cache)
        self.tokens = int(self._passages.lengths.sum(dtype=np.int64))
        if len(self._passages):
            objective.check(self._passages)

    def __len__(self) -> int:
        return len(self._passages)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._objective.sample(self._passages, index, np.random.default_rng([self._seed, EVALUATION, index]))


def _index(corpus: Corpus, documents: range, longest: int, shortest: int) -> Arrays:
    """Where every passage begins, a sequence and an offset in it, and how many tokens it has."""
    cuts = [_cut(corpus, borders, longest, shortest) for borders in _blocks(corpus, documents)]
    names = ("sequences", "offsets", "lengths")
    return {name: np.concatenate(parts) for name, parts in zip(names, zip(*cuts, strict=True), strict=True)}


def _blocks(corpus: Corpus, documents: range) -> list[NDArray[np.int64]]:
    """The documents' borders, in overlapping parts of about BLOCK sequences: whole documents each."""
    borders = np.asarray(corpus.documents[documents.start : documents.stop + 1], dtype=np.int64)
    edges = [0]
    while edges[-1] < len(documents):
        edge = int(np.searchsorted(borders, borders[edges[-1]] + BLOCK, side="right")) - 1
        edges.append(max(edge, edges[-1] + 1))
    return [borders[start : stop + 1] for start, stop in pairwise(edges)] or [borders]


def _cut(
    corpus: Corpus, borders: NDArray[np.int64], longest: int, shortest: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """The same for a few documents that follow each other.

    Pieces are sentences, long ones cut. `after[i]` is the first piece that no longer fits a passage which begins at
    piece i. Passages begin where this leads from the documents' first pieces; doubling the stride of the walk
    finds all these places in a logarithmic number of rounds.
    """
    sizes = np.asarray(corpus.sizes[borders[0] : borders[-1]], dtype=np.int64)
    cuts = np.maximum(1, -(-sizes // longest))
    first = np.concatenate([[0], np.cumsum(cuts)])
    sequence = np.repeat(np.arange(len(sizes)), cuts)
    offset = (np.arange(first[-1]) - first[sequence]) * longest
    begin = np.concatenate([[0], np.cumsum(np.minimum(sizes[sequence] - offset, longest))])
    document_starts = first[borders - borders[0]]
    document_end = np.repeat(document_starts[1:], np.diff(document_starts))
    fitting = np.searchsorted(begin, begin[:-1] + longest, side="right") - 1
    after = np.append(np.minimum(fitting, document_end), len(sequence))
    begins = np.zeros(len(sequence) + 1, dtype=np.bool_)
    begins[document_starts] = True
    while not begins[reached := after[begins]].all():
        begins[reached] = True
        after = after[after]
    starts = np.flatnonzero(begins)
    lengths = np.diff(begin[starts])
    kept = lengths >= shortest
    starts = starts[:-1][kept]
    return borders[0] + sequence[starts], offset[starts].astype(np.int32), lengths[kept].astype(np.int32)
