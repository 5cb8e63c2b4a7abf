"""Where the documents of one epoch lie in its row of tokens: what makes reading any sample a few look-ups.

An index stands for itself. `order` has the epoch's documents in their shuffled order, followed by the first ones of
the next epoch, as many as the epoch's last sample reaches into; `ends` is where each of them ends. The order of the
samples needs no memory. All of it follows from (the sizes of the documents, sequence length, seed, epoch).

Large indexes are kept in a file that the processes of a node share, and the next epoch's is built in the background
while the current one comes to its end. Small ones are built in an instant, so they are not worth a file.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.data.cache import ArrayCache, Arrays
from paddock.data.language.corpus import Corpus, count_tokens, document_sizes
from paddock.data.loading.sampler import Shuffle

SMALL = 100_000
"""Documents up to which an index is not worth a file."""
AHEAD = 0.9
"""How much of an epoch is read when the next one's index is begun."""


@dataclass(frozen=True)
class EpochIndex:
    """The samples that begin in one epoch, `first_sample` and those after it, and the documents they read."""

    first_sample: int
    first_token: int
    samples: Shuffle
    order: NDArray[np.integer]
    ends: NDArray[np.int64]


class EpochIndexes:
    """The index of any epoch of some documents; the one in use is at hand."""

    def __init__(
        self, corpus: Corpus, documents: range, sequence_length: int, seed: int, cache: ArrayCache | None = None
    ) -> None:
        self._made_from = (corpus, documents, sequence_length, seed, cache)
        self._corpus, self._documents, self._length, self._seed = corpus, documents, sequence_length, seed
        self.tokens = count_tokens(corpus, documents)
        self._is_small = len(documents) <= SMALL
        self._cache = None if self._is_small else cache
        self._current: tuple[int, EpochIndex] | None = None
        self._ahead: tuple[int, Future[EpochIndex]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return EpochIndexes, self._made_from

    def with_sample(self, sample: int) -> EpochIndex:
        """The index of the epoch in which this sample begins, in the shuffled order too."""
        epoch = sample * self._length // self.tokens
        if self._current is None or self._current[0] != epoch:
            self._current = epoch, self._take(epoch)
        index = self._current[1]
        if not self._is_small and self._ahead is None and sample - index.first_sample >= AHEAD * len(index.samples):
            self._begin(epoch + 1)
        return index

    def build(self, epoch: int) -> EpochIndex:
        """The index of an epoch, from its file if it is worth one."""
        if self._cache is None:
            arrays = self._build(epoch)
        else:
            key = {
                "kind": "epoch index 1",
                "documents": [self._documents.start, self._documents.stop],
                "tokens": self.tokens,
                "sequence_length": self._length,
                "seed": self._seed,
                "epoch": epoch,
            }
            arrays = self._cache.get(key, lambda: self._build(epoch))
        first, after = (-(-number * self.tokens // self._length) for number in (epoch, epoch + 1))
        samples = Shuffle(after - first, self._seed, epoch, 2)
        return EpochIndex(first, epoch * self.tokens, samples, arrays["order"], arrays["ends"])

    def _take(self, epoch: int) -> EpochIndex:
        ahead, self._ahead = self._ahead, None
        return ahead[1].result() if ahead is not None and ahead[0] == epoch else self.build(epoch)

    def _begin(self, epoch: int) -> None:
        worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="epoch-index")
        self._ahead = epoch, worker.submit(self.build, epoch)
        worker.shutdown(wait=False)

    def _build(self, epoch: int) -> Arrays:
        sizes = document_sizes(self._corpus, self._documents)
        orders, missing = [self._shuffled_documents(epoch)], self._length
        while missing > 0:
            epoch += 1
            orders.append(_leading(self._shuffled_documents(epoch), sizes, missing))
            missing -= int(sizes[orders[-1]].sum(dtype=np.int64))
        order = np.concatenate(orders)
        ends = np.cumsum(sizes[order], dtype=np.int64)
        order += self._documents.start
        return {"order": order, "ends": ends}

    def _shuffled_documents(self, epoch: int) -> NDArray[np.integer]:
        """Numbers from 0 on, in the order of an epoch."""
        count, fits = len(self._documents), self._documents.stop < 2**31
        order: NDArray[np.integer] = np.arange(count, dtype=np.int32) if fits else np.arange(count)
        np.random.default_rng([self._seed, epoch, 1]).shuffle(order)
        return order


def _leading(order: NDArray[np.integer], sizes: NDArray[np.integer], tokens: int) -> NDArray[np.integer]:
    """The first documents of an order: some more than hold that many tokens, or all of them."""
    count = 1024
    while count < len(order) and int(sizes[order[:count]].sum(dtype=np.int64)) < tokens:
        count *= 2
    return order[:count].copy()
