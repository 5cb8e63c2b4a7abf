"""A metric over a run of any length, in bounded memory.

Neighbouring values share a bucket once there are too many, and of each bucket the first, the lowest, the highest and
the last value are kept, so that no spike is lost, and the mean, from which smoothed curves are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

MOST = 1000
"""Buckets of a series: more than a screen has columns for a curve."""
NOWHERE = math.nan


@dataclass(frozen=True, slots=True)
class Point:
    """A value, and where it is: at a step, after so many tokens, after so many seconds, where these are known."""

    step: int
    value: float
    tokens: float = NOWHERE
    seconds: float = NOWHERE


@dataclass(slots=True)
class Bucket:
    """What is kept of neighbouring values."""

    first: Point
    low: Point
    high: Point
    last: Point
    total: float
    count: int
    """Of values that are numbers."""
    broken: Point | None
    """The last value that is not finite."""

    @classmethod
    def of(cls, point: Point) -> Bucket:
        finite = math.isfinite(point.value)
        value, broken = (point.value, None) if finite else (0.0, point)
        return cls(point, point, point, point, value, int(finite), broken)

    def take(self, point: Point) -> None:
        """Take in the next value."""
        self.last = point
        if not math.isfinite(point.value):
            self.broken = point
            return
        if not self.count or point.value < self.low.value:
            self.low = point
        if not self.count or point.value > self.high.value:
            self.high = point
        self.total += point.value
        self.count += 1

    def merge(self, later: Bucket) -> None:
        """Take in what came after."""
        self.last = later.last
        if later.count:
            self.low = later.low if not self.count or later.low.value < self.low.value else self.low
            self.high = later.high if not self.count or later.high.value > self.high.value else self.high
        self.total += later.total
        self.count += later.count
        self.broken = later.broken or self.broken

    @property
    def points(self) -> list[Point]:
        """What is kept, in the order of the steps."""
        kept = {point.step: point for point in (self.first, self.low, self.high, self.last)}
        if self.broken is not None:
            kept[self.broken.step] = self.broken
        return [kept[step] for step in sorted(kept)]


class Series:
    """Values in the order of their steps, thinned as they come."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._span = 1
        self._buckets: dict[int, Bucket] = {}
        self.count = 0
        self.last: Point | None = None

    def add(self, point: Point) -> None:
        self.count += 1
        self.last = point
        there = self._buckets.get(point.step // self._span)
        if there is not None:
            there.take(point)
            return
        self._buckets[point.step // self._span] = Bucket.of(point)
        while len(self._buckets) > self._most:
            self._widen()

    def _widen(self) -> None:
        self._span *= 2
        buckets, self._buckets = self._buckets, {}
        for key in sorted(buckets):
            there = self._buckets.setdefault(key // 2, buckets[key])
            if there is not buckets[key]:
                there.merge(buckets[key])

    @property
    def is_thinned(self) -> bool:
        """Whether some values are not kept."""
        return self.count > sum(len(bucket.points) for bucket in self._buckets.values())

    def points(self) -> Iterator[Point]:
        """All that is kept."""
        for key in sorted(self._buckets):
            yield from self._buckets[key].points

    def smoothed(self, window: float) -> Iterator[Point]:
        """An exponential moving average in which a value `window` steps ago weighs a third of a new one. It begins at
        the first value rather than at zero."""
        total, weight, step = 0.0, 0.0, None
        for key in sorted(self._buckets):
            bucket = self._buckets[key]
            if not bucket.count:
                continue
            end = bucket.last
            fade = 0.0 if step is None else math.exp((step - end.step) / max(window, 1e-9))
            total = total * fade + bucket.total
            weight = weight * fade + bucket.count
            step = end.step
            yield Point(end.step, total / weight, end.tokens, end.seconds)
