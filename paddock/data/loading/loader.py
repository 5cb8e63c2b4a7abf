"""Batches: read ahead while the model computes with the current ones, and padded where rows differ in length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from paddock.data.config import LENGTH_MULTIPLE
from paddock.data.loading.sampler import Sampler
from paddock.data.loading.workers import Batch, BatchReader, WorkerBatches


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
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader")
        self._ahead: Future[list[Batch]] = self._thread.submit(self._read)

    def next(self) -> list[Batch]:
        """The next batches, none behind the end; an error in reading them is raised here, as it was there."""
        batches = self._ahead.result()
        self._ahead = self._thread.submit(self._read)
        return batches

    def _read(self) -> list[Batch]:
        return list(islice(self._batches, self._at_once))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
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

    def next_step(self) -> list[Batch]:
        """The micro-batches of the next step."""
        batches = self.next()
        assert batches, "asked for a step behind the end"
        return batches


def pad_rows(samples: Sequence[Mapping[str, Any]], pad: int, longest: int) -> Batch:
    """`tokens` and `token_types` [batch, time] filled up, and the `lengths` [batch] that hold text.

    Time is the `length` that samples ask for or, where they ask for none, that of the longest row.
    """
    lengths = [len(sample["tokens"]) for sample in samples]
    time = samples[0]["length"] or min(-(-max(lengths) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, longest)
    tokens = np.full((len(samples), time), pad, dtype=np.int64)
    token_types = np.zeros_like(tokens)
    for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        tokens[row, :length] = sample["tokens"]
        token_types[row, :length] = sample["token_types"]
    columns = {"tokens": tokens, "token_types": token_types, "lengths": np.array(lengths)}
    return {name: torch.from_numpy(column) for name, column in columns.items()}
