"""Reading the next step's batches while the current step computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Any

from paddock.data.loader_workers import Batch, BatchReader, WorkerBatches
from paddock.data.sampler import Sampler


class StepLoader:
    """Gives a step's micro-batches in order, from any position to `end`. One thread reads one step ahead.

    With `workers` that many processes do the reading, and the thread collects what they send.
    """

    def __init__(
        self,
        samples: Any,
        sampler: Sampler,
        collate: Callable[[list[Any]], Batch],
        position: int,
        end: int,
        workers: int = 0,
    ) -> None:
        reader = BatchReader(samples, collate)
        parts = (part for start in range(position, end, sampler.batch) for part in sampler.step(start))
        self._workers = WorkerBatches(reader, parts, workers) if workers else None
        self._batches: Iterator[Batch] = self._workers or map(reader.__getitem__, parts)
        self._accumulation = sampler.accumulation
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._ahead: Future[list[Batch]] = self._thread.submit(self._read)

    def next_step(self) -> list[Batch]:
        """The micro-batches of the next step; an error in reading them is raised here, as it was there."""
        batches = self._ahead.result()
        assert batches, "asked for a step behind the end"
        self._ahead = self._thread.submit(self._read)
        return batches

    def _read(self) -> list[Batch]:
        return list(islice(self._batches, self._accumulation))

    def __enter__(self) -> StepLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._workers is not None:
            self._workers.close()
