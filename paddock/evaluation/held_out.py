"""The loss over held-out data: every sample once, whatever the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from paddock.data.sampler import share
from paddock.models.labels import IGNORED
from paddock.parallel.engine import Engine
from paddock.parallel.world import World
from paddock.tasks.task import Batch, Sample, Task


def evaluate(
    task: Task,
    engine: Engine,
    samples: Sequence[Sample],
    world: World,
    micro: int,
    autocast: torch.autocast,
    limit: int | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Metrics over the first `limit` samples (None: all), summed over processes and divided once."""
    count = len(samples) if limit is None else min(limit, len(samples))
    data, rank = engine.mesh.layout.data, engine.mesh.data_rank
    parts = share(count, data, rank, micro)
    rounds = -(-len(share(count, data, data - 1, micro)) // engine.batches_at_once)  # the last share is the largest
    loss_sum, terms = 0.0, 0.0
    engine.train(False)
    for number in range(rounds):
        batches = [
            move(task.collate([samples[index] for index in part]), world.device)
            for part in parts[number * engine.batches_at_once : (number + 1) * engine.batches_at_once]
        ]
        if not batches:  # others still work, and need this process's part of the model
            batches = [_counting_nothing(move(task.collate([samples[0]]), world.device))]
        loss_sum += engine.forward(batches, autocast)
        terms += sum(task.count(batch) for batch in batches) if engine.speaks_for_data else 0
        if on_batch is not None:
            on_batch(number + 1, rounds)
    engine.train()
    total_loss, total_terms = world.total([loss_sum, terms])
    return task.metrics(total_loss, total_terms)


def _counting_nothing(batch: Batch) -> Batch:
    return {**batch, "labels": torch.full_like(batch["labels"], IGNORED)}


def move(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device that computes."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
