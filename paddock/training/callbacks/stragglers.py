"""Which process keeps the others waiting.

All processes end a step together, so its duration is everybody's, and tells nothing. Compared is what each one does
itself: the time that its main thread computes, or is kept from computing by something else on its machine, and the
time that it waits for its data; not the time in which it waits for the others (`telemetry/thread_time.py`). Known where
the host computes; a device's queue would have to be waited for.

What the processes measured goes over the control group as they log, and is looked at when they log next: nobody waits
for it. Those at one place of a pipeline are compared, since they compute the same.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from paddock.training.callbacks import Callback
from paddock.training.run import TrainingRun

SLOWER = 1.25
"""Times what the others take, on which a process is called slow."""
WINDOWS, STEPS = 3, 30
"""Times of logging in a row, and steps in all, after which that is no accident."""
MOST_SHOWN = 64
"""Processes of which each gets a metric of its own."""


@dataclass
class _Slow:
    """Of a process that is slower than the others, for the time being."""

    windows: int = 0
    steps: int = 0
    told: bool = False


class Stragglers(Callback):
    """Adds what every process took for a step itself (`train.own_time.RANK`, those of the last time of logging), and
    names one that is slower than its peers again and again."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.say = say
        self._logged_step = 0
        self._hosts: list[str] = []
        self._under_way: tuple[int, Callable[[], list[float]]] | None = None
        self._slow: dict[int, _Slow] = {}
        self._totals: list[float] = []
        self._steps = 0

    def on_start(self, run: TrainingRun) -> None:
        self._logged_step = run.progress.step
        self._hosts = [json.loads(told) for told in run.world.all_gather(json.dumps(socket.gethostname()))]
        self._totals = [0.0] * run.world.size

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        if metrics is None or run.world.size == 1:
            return
        times = self._take(run)
        if times is not None and len(times) <= MOST_SHOWN:
            metrics |= {f"train.own_time.{rank}": seconds for rank, seconds in enumerate(times)}
        steps, self._logged_step = run.progress.step - self._logged_step, run.progress.step
        if run.world.adapter.computes_on_host:
            mine = [0.0] * run.world.size
            mine[run.world.rank] = metrics.get("train.own_time", 0.0)
            self._under_way = steps, run.world.start_all_reduce_sum(mine)

    def on_end(self, run: TrainingRun) -> None:
        self._take(run)
        if self._steps < STEPS or not run.world.is_main:
            return
        for rank, seconds, others in self._slower(run, [total / self._steps for total in self._totals]):
            self.say(f"{self._name(rank)} was the slowest: {_compared(seconds, others)}, over the whole run")

    def _take(self, run: TrainingRun) -> list[float] | None:
        """What all processes measured the last time, if they did."""
        if self._under_way is None:
            return None
        (steps, gathered), self._under_way = self._under_way, None
        times = gathered()
        if not all(times):  # steps that only warm up
            return None
        self._steps += steps
        self._totals = [total + steps * seconds for total, seconds in zip(self._totals, times, strict=True)]
        self._judge(run, times, steps)
        return times

    def _judge(self, run: TrainingRun, times: list[float], steps: int) -> None:
        slower = {rank: (seconds, others) for rank, seconds, others in self._slower(run, times)}
        self._slow = {rank: self._slow.get(rank, _Slow()) for rank in slower}
        for rank, slow in self._slow.items():
            slow.windows, slow.steps = slow.windows + 1, slow.steps + steps
            if slow.windows >= WINDOWS and slow.steps >= STEPS and not slow.told:
                slow.told = True
                if run.world.is_main:
                    said = f"{self._name(rank)} is slow: {_compared(*slower[rank])}, in the last {slow.steps} steps"
                    self.say(f"{said}; all wait for it")

    def _slower(self, run: TrainingRun, times: list[float]) -> list[tuple[int, float, float]]:
        """The processes that take much longer than the others at their place, and what those take."""
        width = len(times) // run.engine.mesh.layout.pipeline
        found = []
        for rank, seconds in enumerate(times):
            first = rank - rank % width
            others = [times[other] for other in range(first, first + width) if other != rank]
            if others and seconds > SLOWER * median(others):
                found.append((rank, seconds, median(others)))
        return found

    def _name(self, rank: int) -> str:
        return f"rank {rank} (on {self._hosts[rank]})"


def _compared(seconds: float, others: float) -> str:
    return f"it takes {seconds:.3g} s for its part of a step, its peers {others:.3g} s"
