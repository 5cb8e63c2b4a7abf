"""The course of a number over a whole run, in a few characters: `█▆▄▃▂▂▁▁`."""

from __future__ import annotations

import math

_BLOCKS = "▁▂▃▄▅▆▇█"


class Trend:
    """Keeps at most `points` averages over equal spans, so that its cost does not grow with the run."""

    def __init__(self, points: int = 16) -> None:
        assert points % 2 == 0
        self._limit = points
        self._span = 1
        self._means: list[float] = []
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        if not math.isfinite(value):
            return
        self._pending.append(value)
        if len(self._pending) < self._span:
            return
        self._means.append(sum(self._pending) / self._span)
        self._pending.clear()
        if len(self._means) == self._limit:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(first + second) / 2 for first, second in pairs]
            self._span *= 2

    def __str__(self) -> str:
        """Empty while there is no course to see."""
        if len(self._means) < 2:
            return ""
        low, high = min(self._means), max(self._means)
        step = (high - low) / (len(_BLOCKS) - 1) or 1.0
        return "".join(_BLOCKS[round((mean - low) / step)] for mean in self._means)
