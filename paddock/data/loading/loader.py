"""Batches: read ahead while the model computes with the current ones, and padded where rows differ in length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paddock.data.config import LENGTH_MULTIPLE
from paddock.data.loading.sampler import Sampler
from paddock.data.loading.workers import Batch, BatchReader, WorkerBatches

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_FINISH = 10
"""What is being read when nobody wants it any more is waited for so long."""


class WaitGivenUp(Exception):
    """Batches did not come, and whoever waited for them was asked to stop."""


class BatchLoader:
    """Gives the batches of `parts` in order, `at_once` at a time. One thread reads the next ones ahead.

    With `workers` that many processes do the reading, and the thread collects what they send.
    """

    def __init__(
        self,
        samples: Any,
        collate: Callable[[list[Any]], Batch],
        parts: Iterable[Sequence[int]],
        at_once: int,
        workers: int = 0,
    ) -> None:
        reader = BatchReader(samples, collate)
        self._workers = WorkerBatches(reader, iter(parts), workers) if workers else None
        self._batches: Iterator[Batch] = self._workers or map(reader.__getitem__, parts)
        self._at_once = at_once
        self._patience = SECONDS_TO_FINISH
        self._asked: SimpleQueue[bool] = SimpleQueue()
        self._read: SimpleQueue[list[Batch] | BaseException] = SimpleQueue()
        # A daemon: one that waits for what never comes must not keep the process.
        self._thread = Thread(target=self._read_ahead, name="loader", daemon=True)
        self._thread.start()
        self._asked.put(True)

    def next(self, gives_up: Callable[[], object] = lambda: False) -> list[Batch]:
        """The next batches, none behind the end; an error in reading them is raised here, as it was there, and
        WaitGivenUp if they do not come and the caller gives up."""
        while True:
            try:
                read = self._read.get(timeout=SECONDS_BETWEEN_LOOKS)
                break
            except Empty:
                if gives_up():
                    self._patience = 0
                    raise WaitGivenUp from None
        if isinstance(read, BaseException):
            self._read.put(read)
            raise read
        self._asked.put(True)
        return read

    def _read_ahead(self) -> None:
        while self._asked.get():
            try:
                self._read.put(list(islice(self._batches, self._at_once)))
            except BaseException as error:
                self._read.put(error)
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asked.put(False)
        self._thread.join(self._patience)
        if self._workers is not None:
            self._workers.close()


class StepLoader(BatchLoader):
    """Gives a training step's micro-batches in order, from any position to `end`."""

    def __init__(
        self,
        samples: Any,
        sampler: Sampler,
        collate: Callable[[list[Any]], Batch],
        position: int,
        end: int,
        workers: int = 0,
    ) -> None:
        parts = (part for start in range(position, end, sampler.batch) for part in sampler.step(start))
        super().__init__(samples, collate, parts, sampler.accumulation, workers)

    def next_step(self, gives_up: Callable[[], object] = lambda: False) -> list[Batch]:
        """The micro-batches of the next step."""
        batches = self.next(gives_up)
        assert batches, "asked for a step behind the end"
        return batches


def pad_rows(samples: Sequence[Mapping[str, Any]], pad: int, longest: int) -> Batch:
    """`tokens` and `token_types` [batch, time] filled up, and the `lengths` [batch] that hold text.

    Time is the `length` that samples ask for or, where they ask for none, that of the longest row.
    """
    length = samples[0]["length"]
    return {
        "tokens": fill_up([sample["tokens"] for sample in samples], pad, length, longest),
        "token_types": fill_up([sample["token_types"] for sample in samples], 0, length, longest),
        "lengths": torch.tensor([len(sample["tokens"]) for sample in samples]),
    }


def fill_up(
    rows: Sequence[Sequence[int] | NDArray[Any]], fill: int, length: int | None, longest: int | None = None
) -> Tensor:
    """Rows as one tensor [rows, time]. Time is `length` or, where that is None, enough for the longest row: a multiple
    of LENGTH_MULTIPLE that is at most `longest`; where that is None, too, just enough."""
    most = max(map(len, rows))
    time = length or (most if longest is None else min(-(-most // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, longest))
    filled = np.full((len(rows), time), fill, dtype=np.int64)
    for place, row in enumerate(rows):
        filled[place, : len(row)] = row
    return torch.from_numpy(filled)
