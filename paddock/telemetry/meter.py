"""How fast a run is: samples, tokens and FLOPs per second, step time, data time, utilisation; and when it will end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

WARMUP = 2
"""Steps that compile, allocate and fill caches."""


@dataclass
class _Totals:
    steps: int = 0
    seconds: float = 0.0
    data_seconds: float = 0.0
    own_seconds: float = 0.0
    samples: int = 0
    tokens: float = 0.0
    flops: float = 0.0

    def add(self, other: _Totals) -> None:
        self.steps += other.steps
        self.seconds += other.seconds
        self.data_seconds += other.data_seconds
        self.own_seconds += other.own_seconds
        self.samples += other.samples
        self.tokens += other.tokens
        self.flops += other.flops


class ThroughputMeter:
    """Times steps from their start to their end; what happens between steps (an evaluation, a checkpoint)
    does not count, and neither do the first `warmup` steps, which compile, allocate and fill caches.

    Pass samples, tokens and FLOPs of the whole job, and as `peak_flops` the sum over its `devices`. On a device
    that computes asynchronously a step's own time is that of the queue: synchronise before the `end_step` that precedes
    `window`, and the window's is right. A clock `busy` that runs only while this process works itself tells its own
    time of a step from that which it waits for others.
    """

    def __init__(
        self,
        warmup: int = WARMUP,
        *,
        peak_flops: float | None = None,
        devices: int = 1,
        clock: Callable[[], float] = time.perf_counter,
        busy: Callable[[], float] | None = None,
    ) -> None:
        self.peak_flops, self.devices = peak_flops, devices
        self._warmup_left = warmup
        self._clock, self._busy = clock, busy
        self._started: float | None = None
        self._busy_before = 0.0
        self._window = _Totals()
        self._overall = _Totals()

    def start_step(self) -> None:
        """The step begins."""
        self._started = self._clock()
        self._busy_before = self._busy() if self._busy is not None else 0.0

    def end_step(
        self,
        *,
        samples: int,
        tokens: float = 0.0,
        flops: float = 0.0,
        data_seconds: float = 0.0,
        idle_seconds: float = 0.0,
    ) -> None:
        """The step is done; it processed this much, and waited so long for data, in which it was idle for a part."""
        assert self._started is not None, "end_step() without start_step()"
        seconds = self._clock() - self._started
        self._started = None
        if self._warmup_left > 0:
            self._warmup_left -= 1
            return
        own = self._busy() - self._busy_before + idle_seconds if self._busy is not None else 0.0
        step = _Totals(1, seconds, data_seconds, own, samples, tokens, flops)
        self._window.add(step)
        self._overall.add(step)

    def window(self) -> dict[str, float]:
        """Averages since the last call; empty if no step has counted since then."""
        window, self._window = self._window, _Totals()
        return self._averages(window)

    def summary(self) -> dict[str, float]:
        """Averages over the whole run; empty if it was no longer than its warm-up."""
        return self._averages(self._overall)

    def _averages(self, totals: _Totals) -> dict[str, float]:
        if totals.steps == 0 or totals.seconds <= 0:
            return {}
        averages = {"ips": totals.samples / totals.seconds}
        if totals.tokens:
            averages["tokens_per_second"] = totals.tokens / totals.seconds
            if self.devices > 1:
                averages["tokens_per_second_per_device"] = averages["tokens_per_second"] / self.devices
        averages["step_time"] = totals.seconds / totals.steps
        averages["data_time"] = totals.data_seconds / totals.steps
        averages["compute_time"] = averages["step_time"] - averages["data_time"]
        if totals.own_seconds:
            averages["own_time"] = totals.own_seconds / totals.steps
        if totals.flops:
            averages["achieved_flops"] = totals.flops / totals.seconds
            if self.peak_flops:
                averages["utilisation"] = averages["achieved_flops"] / self.peak_flops
        return averages


class EtaEstimator:
    """The time left of a run, from its wall-clock time per step since the warm-up: evaluations and checkpoints count,
    since they will come again. The first `warmup` observations only move the starting point: they are slow."""

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
        """Time until `total_steps`, None while unknown; `step_time` serves until steps were observed."""
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
