"""Replicas of a model run forward passes in step: each as many, round by round, as the one with most samples needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from paddock.data.loading.sampler import evaluation_batches
from paddock.devices import select
from paddock.evaluation.held_out import evaluate, micro_batches_per_round
from paddock.parallel.config import Layout
from paddock.parallel.engine import Engine
from paddock.parallel.mesh import Mesh
from paddock.parallel.world import World
from paddock.tasks.task import Judgement, Task


class CountingEngine:
    """An engine of which only the numbers of its forward passes are of interest. Its loss is the sum of a batch."""

    leads_replica = True

    def __init__(self, data: int, rank: int, batches_at_once: int) -> None:
        self.mesh = Mesh(Layout(data, 1, 1), rank, None)
        self.batches_at_once = batches_at_once
        self.passes: list[int] = []

    def train(self, training: bool = True) -> None:
        pass

    def outputs(self, batches: Sequence[Mapping[str, Tensor]]) -> list[Tensor]:
        self.passes.append(len(batches))
        return [batch["tokens"].sum() for batch in batches]


class SummingTask:
    """Samples are numbers, none of them 0; an evaluation adds them up, by their loss or as judged."""

    judges_labels = False

    def __init__(self, judges_outputs: bool) -> None:
        self.judges_outputs = judges_outputs

    def collate(self, samples: list[dict[str, int]]) -> dict[str, Tensor]:
        return {"tokens": torch.tensor([sample["number"] for sample in samples])}

    def transform_on_device(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return batch

    def count(self, batch: dict[str, Tensor]) -> int:
        return len(batch["tokens"])

    def judge(self, batch: dict[str, Tensor], outputs: Tensor) -> Judgement:
        return Judgement({"loss": float(outputs), "count": self.count(batch)})

    def metrics(self, judgement: Judgement) -> dict[str, float]:
        return judgement.sums


@pytest.mark.parametrize("judges_outputs", [False, True])
@pytest.mark.parametrize("limit", [0, 1, 2, 29, 33, 64])
def test_replicas_run_as_many_passes_in_every_round(limit: int, judges_outputs: bool) -> None:
    samples: list[Any] = [{"number": number} for number in range(1, 101)]
    alone = World(0, 1, select("cpu"), torch.device("cpu"))
    task = SummingTask(judges_outputs)
    engines = [CountingEngine(3, rank, batches_at_once=8) for rank in range(3)]
    sums = [evaluate(cast(Task, task), cast(Engine, engine), samples, alone, 2, limit) for engine in engines]
    assert engines[0].passes == engines[1].passes == engines[2].passes
    assert sum(found["loss"] for found in sums) == sum(range(1, limit + 1)), "an idle batch was counted"
    assert sum(found["count"] for found in sums) == limit


def test_rounds_hold_every_share_and_no_more_than_the_largest() -> None:
    for count, data, micro, at_once in product(range(40), (1, 2, 3, 5), (1, 2, 4), (1, 4, 8)):
        rounds = micro_batches_per_round(count, data, micro, at_once)
        assert sum(rounds) == max(len(evaluation_batches(count, data, rank, micro)) for rank in range(data))
        assert all(size == at_once for size in rounds[:-1])
        assert all(0 < size <= at_once for size in rounds)
