"""Reading the next step's batches while the current step computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, TypeVar

from paddock.data.sampler import Sampler

Batch = TypeVar("Batch")


class StepLoader(Generic[Batch]):
    """Gives a step's micro-batches in order, from any position. One thread reads one step ahead."""

    def __init__(
        self, samples: Any, sampler: Sampler, collate: Callable[[list[Any]], Batch], position: int, end: int
    ) -> None:
        self._samples, self._sampler, self._collate = samples, sampler, collate
        self._position, self._end = position, end
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._ahead: Future[list[Batch]] = self._reader.submit(self._read, position)

    def next_step(self) -> list[Batch]:
        """The micro-batches of the next step; an error in reading them is raised here, as it was there."""
        batches = self._ahead.result()
        self._position += self._sampler.batch
        if self._position < self._end:
            self._ahead = self._reader.submit(self._read, self._position)
        return batches

    def _read(self, position: int) -> list[Batch]:
        return [self._collate([self._samples[index] for index in part]) for part in self._sampler.step(position)]

    def __enter__(self) -> StepLoader[Batch]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)
