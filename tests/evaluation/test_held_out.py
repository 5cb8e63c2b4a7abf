"""Replicas of a model run forward passes in step: each as many, round by round, as the one with most samples needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from paddock.devices import select
from paddock.evaluation.held_out import batches_of_replica, evaluate, micro_batches_per_round
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
    for most, at_once in product(range(40), (1, 4, 8)):
        rounds = micro_batches_per_round(most, at_once)
        assert sum(rounds) == most
        assert all(size == at_once for size in rounds[:-1])
        assert all(0 < size <= at_once for size in rounds)


class Rows(list[Any]):
    """Samples whose lengths are known, and maybe how many tokens to take at once."""

    def __init__(self, lengths: list[int], tokens_at_once: int | None = None) -> None:
        super().__init__({"number": number} for number in range(1, len(lengths) + 1))
        self.lengths = lengths
        if tokens_at_once is not None:
            self.tokens_at_once = tokens_at_once


@given(
    st.lists(st.integers(1, 60), max_size=40),
    st.integers(1, 5),
    st.integers(1, 4),
    st.none() | st.integers(1, 200),
)
def test_every_sample_is_in_one_batch_and_no_batch_is_too_large(
    lengths: list[int], data: int, micro: int, tokens_at_once: int | None
) -> None:
    samples = Rows(lengths, tokens_at_once)
    shares = [batches_of_replica(samples, len(samples), data, replica, micro) for replica in range(data)]
    assert sorted(index for share in shares for batch in share for index in batch) == list(range(len(lengths)))
    for batch in (batch for share in shares for batch in share):
        longest = -(-max(lengths[index] for index in batch) // 8) * 8
        if tokens_at_once is None:
            assert len(batch) <= micro
        else:
            assert len(batch) == 1 or len(batch) * longest <= tokens_at_once
    for share in shares:
        order = [lengths[index] for batch in share for index in batch]
        assert order == sorted(order, reverse=True)


@pytest.mark.parametrize("tokens_at_once", [None, 24])
def test_replicas_whose_batches_are_bounded_by_tokens_run_as_many_passes(tokens_at_once: int | None) -> None:
    samples = Rows([*[1] * 30, *[20] * 10, *range(1, 31)], tokens_at_once)  # one replica's are short, another's long
    alone = World(0, 1, select("cpu"), torch.device("cpu"))
    task, engines = SummingTask(False), [CountingEngine(3, rank, batches_at_once=4) for rank in range(3)]
    found: list[Judgement] = []
    for engine in engines:
        evaluate(cast(Task, task), cast(Engine, engine), samples, alone, 2, on_found=found.append)
    assert engines[0].passes == engines[1].passes == engines[2].passes
    assert sum(one.sums["loss"] for one in found) == sum(range(1, len(samples) + 1))
