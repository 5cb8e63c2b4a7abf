"""What a step works on, made ready while the step before computes: its micro-batches on the device, and what they
amount to over all processes.

The counts, and whether anybody wants to stop, are agreed on over the control group, one step ahead: when a step
begins, its numbers are there, and no process waits for another's device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from paddock.data.loading.loader import StepLoader, WaitGivenUp
from paddock.parallel.pipeline.stage import Batch
from paddock.parallel.placement import DeviceCopies
from paddock.parallel.world import World
from paddock.tasks.task import Task
from paddock.telemetry.thread_time import thread_seconds


@dataclass(frozen=True)
class StepInput:
    """One step's work: this process's micro-batches, and numbers that all processes share."""

    batches: Sequence[Batch]
    terms: float
    """Of the loss, at least one."""
    tokens: float
    flops: float
    waited: float
    """Seconds that this process waited for its samples to be read."""
    idle: float
    """Those of them in which it did nothing itself."""
    stops: bool
    """Whether some process is asked to stop before this step."""


class StepFeed:
    """Reads steps from a loader, one ahead of the one that is taken."""

    def __init__(
        self,
        loader: StepLoader,
        task: Task,
        world: World,
        *,
        steps: int,
        counts: bool,
        flops_of: Callable[[Batch], float] = lambda _: 0.0,
        stop_requested: Callable[[], object] = lambda: None,
    ) -> None:
        """Of the `steps` that the loader has. `counts` says whether this process is the one of its data replica that
        counts; `flops_of` a micro-batch is what training on it takes."""
        self._loader, self._task, self._world, self._left = loader, task, world, steps
        self._counts, self._flops_of, self._stop_requested = counts, flops_of, stop_requested
        self._copies = DeviceCopies(world.adapter, world.device)
        self._ahead: Callable[[], StepInput] | None = None
        self.skipped: set[int] = set()
        """The numbers of samples that could not be read, and were replaced, in steps that were taken."""

    def prepare(self) -> None:
        """Begin with the next step: read it, copy it, and let the others know of it."""
        if self._ahead is not None or self._left == 0:
            return
        self._left -= 1
        began, busy = time.perf_counter(), thread_seconds()
        try:
            host = self._loader.next_step(gives_up=self._stop_requested)
        except WaitGivenUp:
            host = []  # nobody takes this step: the others hear below that a stop was asked for
        except Exception as error:  # the step that is under way ends first
            self._ahead = partial(_raise, error)
            return
        waited = time.perf_counter() - began
        idle = max(0.0, waited - (thread_seconds() - busy))
        agreed = self._world.start_all_reduce_sum([float(bool(self._stop_requested())), *self._work(host)])
        copies = [self._copies.start(batch) for batch in host]

        def finish() -> StepInput:
            stops, terms, tokens, flops = agreed()
            if not stops:
                self.skipped.update(number for batch in host for number in self._task.skipped(batch))
            batches = [self._task.transform_on_device(copy()) for copy in copies]
            return StepInput(batches, max(terms, 1.0), tokens, flops, waited, idle, bool(stops))

        self._ahead = finish

    def take(self) -> StepInput:
        """The next step's work."""
        self.prepare()
        assert self._ahead is not None, "asked for a step behind the end"
        ahead, self._ahead = self._ahead, None
        return ahead()

    def _work(self, batches: Sequence[Batch]) -> tuple[float, float, float]:
        """Terms, tokens and FLOPs of these micro-batches; each counts in one of the processes that share it."""
        if not self._counts:
            return 0.0, 0.0, 0.0
        task = self._task
        return (
            sum(task.count(dict(batch)) for batch in batches),
            sum(task.num_tokens(dict(batch)) for batch in batches),
            sum(map(self._flops_of, batches)),
        )


def _raise(error: Exception) -> StepInput:
    raise error
