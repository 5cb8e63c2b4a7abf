"""Samples of several corpora, mixed in proportion to their weights.

The row of samples is cut into blocks. How many samples of each corpus lie before a block is its exact share, rounded
(the largest remainders up), and inside the block they are shuffled; a corpus's own samples come in their order. So
sample i is a pure function of (weights, seed, i): no index, hardly any memory, any position at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import lcm
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.data.blend_path import SMALLEST_SHARE
from paddock.data.language.corpus import Corpus, Sample, describe_content, describe_part
from paddock.errors import DataError

SMALLEST_BLOCK = 2**16


class _Block(NamedTuple):
    number: int
    before: list[int]
    """Samples of each corpus in the blocks before this one."""
    corpus: NDArray[np.integer]
    """The corpus of each sample of the block."""
    rank: NDArray[np.integer]
    """How many samples of the same corpus come before it in the block."""


class BlendOrder:
    """Which corpus a sample is of, and which of that corpus's samples it is."""

    def __init__(self, weights: Sequence[float], seed: int) -> None:
        shares = [Fraction(str(weight)) for weight in weights]
        common = lcm(*(share.denominator for share in shares))
        self._weights = [int(share * common) for share in shares]
        self._total, self._seed = sum(self._weights), seed
        # A block has room for at least one sample of each corpus, so that no count is ever smaller than the last.
        self.block = max(SMALLEST_BLOCK, 1 << (-(-self._total // min(self._weights)) - 1).bit_length())
        self._latest: _Block | None = None

    def find(self, index: int) -> tuple[int, int]:
        """The corpus of sample `index`, and the sample's number in that corpus."""
        number, place = divmod(index, self.block)
        if self._latest is None or self._latest.number != number:
            self._latest = self._make(number)
        corpus = self._latest.corpus.item(place)
        return corpus, self._latest.before[corpus] + self._latest.rank.item(place)

    def before(self, block: int) -> list[int]:
        """How many samples of each corpus come before a block."""
        samples = block * self.block
        quotas = [divmod(samples * weight, self._total) for weight in self._weights]
        counts = [whole for whole, _ in quotas]
        by_remainder = sorted(range(len(quotas)), key=lambda corpus: -quotas[corpus][1])
        for corpus in by_remainder[: samples - sum(counts)]:
            counts[corpus] += 1
        return counts

    def _make(self, number: int) -> _Block:
        before = self.before(number)
        counts = np.subtract(self.before(number + 1), before)
        corpus = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        np.random.default_rng([self._seed, number, 3]).shuffle(corpus)
        rank = np.empty(self.block, dtype=np.int32)
        rank[np.argsort(corpus, kind="stable")] = np.concatenate([np.arange(count) for count in counts])
        return _Block(number, before, corpus, rank)


class CorpusSamples(Protocol):
    """The training samples of one corpus, without end, and how many tokens an epoch of them has."""

    tokens: int

    @property
    def samples_per_epoch(self) -> float: ...

    def __getitem__(self, index: int) -> Sample: ...


class BlendedSamples:
    """Training samples of several corpora. An epoch is as many samples as the corpora have between them."""

    def __init__(self, parts: Sequence[CorpusSamples], weights: Sequence[float], seed: int) -> None:
        self._parts, self._order = parts, BlendOrder(weights, seed)

    @property
    def samples_per_epoch(self) -> float:
        return sum(part.samples_per_epoch for part in self._parts)

    def __getitem__(self, index: int) -> Sample:
        corpus, number = self._order.find(index)
        return self._parts[corpus][number]


class ChainedSamples(Sequence[Sample]):
    """Evaluation samples of several corpora, one corpus after the other."""

    def __init__(self, parts: Sequence[Sequence[Sample]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(len(part) for part in parts))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        part = bisect_right(self._ends, index)
        return self._parts[part][index - self._ends[part] + len(self._parts[part])]


def blend_weights(blend: Sequence[tuple[float | None, object]], tokens: list[int]) -> list[float]:
    """The weights of a blend; without any, the corpora's `tokens`, so that an epoch reads each of them once."""
    if all(weight is not None for weight, _ in blend):
        return [weight for weight, _ in blend if weight is not None]
    for count, (_, prefix) in zip(tokens, blend, strict=True):
        if count < SMALLEST_SHARE * sum(tokens):
            raise DataError(
                f"{prefix} is too small for this blend",
                why=f"it has {count} of {sum(tokens)} tokens to train on, so it is as good as never read",
                fix="leave it out, give the corpora weights (0.99 a 0.01 b), or join it to another: paddock data merge",
            )
    return [*tokens]


def describe_blend(
    blend: Sequence[tuple[float | None, object]], corpora: Sequence[Corpus], documents: Sequence[range]
) -> str:
    """A line that tells these parts of corpora from others: each with its share, where shares are given."""
    given = [weight for weight, _ in blend if weight is not None]
    shares = [f"{weight / sum(given):.6g} of " for weight in given] if len(blend) > 1 and given else [""] * len(corpora)
    parts = zip(shares, corpora, documents, strict=True)
    return "; ".join(share + describe_part(corpus, part) for share, corpus, part in parts)


def describe_contents(corpora: Sequence[Corpus], documents: Sequence[range]) -> str:
    """What these parts of corpora say, as digests."""
    return "; ".join(describe_content(corpus, part) for corpus, part in zip(corpora, documents, strict=True))
