"""When will it end: the time left, from the pace so far."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Wall-clock time per step since the warm-up, evaluations and checkpoints included, since they will come
    again. The first `warmup` observations only move the starting point: the first steps are slow."""

    def __init__(self, warmup: int = 2, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._warmup_left = warmup
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def observe(self, step: int) -> None:
        """The step has ended now. Hearing of the same step twice changes nothing."""
        if self._last is not None and step <= self._last[0]:
            return
        self._last = (step, self._clock())
        if self._warmup_left > 0 or self._first is None:
            self._warmup_left -= 1
            self._first = self._last

    def seconds_left(self, total_steps: int, step_time: float | None = None) -> float | None:
        """Time until `total_steps`, None while unknown; `step_time` serves until there is a pace."""
        if self._first is None or self._last is None:
            return None
        left = max(total_steps - self._last[0], 0)
        if self._last[0] > self._first[0]:
            seconds = (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])
        elif step_time is not None:
            seconds = step_time
        else:
            return None
        # Between two ticks the estimate runs down, as a clock does.
        return max(left * seconds - (self._clock() - self._last[1]), 0.0)
