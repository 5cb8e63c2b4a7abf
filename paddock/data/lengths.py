"""How long things are: exact statistics and a histogram of any number of lengths, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import dropwhile, pairwise

import numpy as np
from numpy.typing import NDArray

SHORT = 1 << 20
"""Lengths below are counted one by one. A longer one is kept as it is: of those no corpus has many."""


@dataclass(frozen=True)
class LengthRange:
    """How many lengths lie between two, both included."""

    low: int
    high: int
    count: int


@dataclass
class Lengths:
    """Lengths, added in any number of parts."""

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
