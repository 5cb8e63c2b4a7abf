"""Samples for language modelling: windows of consecutive tokens, crossing document borders.

Training reads an endless stream: every epoch is all documents in a new order, and a sample is the
`sequence_length + 1` tokens from where the last one's final token stood. Samples that begin in the same epoch come
in a new order too. Both orders are a pure function of (seed, epoch), so sample i is the same for every layout.
Evaluation reads every token of its part once, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.errors import DataError
from paddock.models.labels import IGNORED

Sample = dict[str, NDArray[np.int64]]


class Corpus(Protocol):
    """Sequences of tokens, read piece by piece."""

    @property
    def sizes(self) -> NDArray[np.integer]: ...

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]: ...


class TokenStream:
    """Some documents of a corpus, in a given order, as one long row of tokens."""

    def __init__(self, corpus: Corpus, order: NDArray[np.int64]) -> None:
        self._corpus = corpus
        self._order = order
        self._ends = np.cumsum(corpus.sizes[order], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, start: int, stop: int) -> list[NDArray[np.integer]]:
        """The tokens start…stop, as the pieces of the documents they lie in."""
        pieces = []
        position = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop and position < len(self._order):
            document, end = int(self._order[position]), int(self._ends[position])
            begin = end - int(self._corpus.sizes[document])
            pieces.append(self._corpus.slice(document, start - begin, min(stop, end) - begin))
            start, position = min(stop, end), position + 1
        return pieces


class TrainingSamples:
    """An endless sequence of training samples."""

    def __init__(self, corpus: Corpus, documents: range, sequence_length: int, seed: int) -> None:
        self._corpus, self._documents = corpus, documents
        self._length, self._seed = sequence_length, seed
        self._epoch_tokens = int(corpus.sizes[documents.start : documents.stop].sum(dtype=np.int64))
        if self._epoch_tokens < 2:
            raise DataError(
                "the training part is empty",
                why=f"its {len(documents)} documents hold {self._epoch_tokens} tokens",
                fix="give a larger corpus, or a data.split with more weight on training",
            )
        self._order = lru_cache(maxsize=2)(self._build_epoch)

    @property
    def samples_per_epoch(self) -> float:
        """How many samples one pass over the documents makes; epochs follow each other without a gap."""
        return self._epoch_tokens / self._length

    def __getitem__(self, index: int) -> Sample:
        first_token = index * self._length
        epoch = first_token // self._epoch_tokens
        shuffled, _ = self._order(epoch)
        first_sample = -(-epoch * self._epoch_tokens // self._length)
        start = (first_sample + int(shuffled[index - first_sample])) * self._length
        tokens = self._read(start, start + self._length + 1)
        return {"tokens": tokens[:-1], "labels": tokens[1:]}

    def _read(self, start: int, stop: int) -> NDArray[np.int64]:
        pieces: list[NDArray[np.integer]] = []
        while start < stop:
            epoch, offset = divmod(start, self._epoch_tokens)
            end = min(stop, (epoch + 1) * self._epoch_tokens)
            pieces += self._order(epoch)[1].read(offset, offset + end - start)
            start = end
        return np.concatenate(pieces).astype(np.int64)

    def _build_epoch(self, epoch: int) -> tuple[NDArray[np.int64], TokenStream]:
        """The order of the samples that begin in this epoch, and its documents in their order."""
        generator = np.random.default_rng([self._seed, epoch])
        documents = self._documents.start + generator.permutation(len(self._documents))
        first = -(-epoch * self._epoch_tokens // self._length)
        after = -(-(epoch + 1) * self._epoch_tokens // self._length)
        return generator.permutation(after - first), TokenStream(self._corpus, documents)


class EvaluationSamples(Sequence[Sample]):
    """Every token of some documents but the first, each as a label exactly once; the last window is padded."""

    def __init__(self, corpus: Corpus, documents: range, sequence_length: int) -> None:
        self._stream = TokenStream(corpus, np.arange(documents.start, documents.stop))
        self._length = sequence_length

    def __len__(self) -> int:
        return max(0, -(-(len(self._stream) - 1) // self._length))

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self._length
        pieces = self._stream.read(start, start + self._length + 1)
        tokens = np.concatenate(pieces).astype(np.int64)
        missing = self._length + 1 - len(tokens)
        return {
            "tokens": np.pad(tokens[:-1], (0, missing)),
            "labels": np.pad(tokens[1:], (0, missing), constant_values=IGNORED),
        }


def split_documents(count: int, weights: tuple[float, float, float]) -> tuple[range, range, range]:
    """The training, validation and test documents: consecutive, in proportion to the weights."""
    total = sum(weights)
    borders = [0] + [round(count * sum(weights[: part + 1]) / total) for part in range(3)]
    return range(borders[0], borders[1]), range(borders[1], borders[2]), range(borders[2], borders[3])
