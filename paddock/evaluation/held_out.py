"""The loss over held-out data: every sample once, whatever the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from paddock.data.sampler import share
from paddock.models.modes import evaluating
from paddock.parallel.world import World
from paddock.tasks.task import Batch, Sample, Task


def evaluate(
    task: Task,
    model: nn.Module,
    samples: Sequence[Sample],
    world: World,
    micro: int,
    autocast: torch.autocast,
    limit: int | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Metrics over the first `limit` samples (None: all), summed over processes and divided once."""
    count = len(samples) if limit is None else min(limit, len(samples))
    parts = share(count, world.size, world.rank, micro)
    loss_sum, terms = 0.0, 0.0
    with evaluating(model), torch.no_grad(), autocast:
        for done, part in enumerate(parts):
            batch = move(task.collate([samples[index] for index in part]), world.device)
            loss_sum += float(task.loss(model, batch))
            terms += task.count(batch)
            if on_batch is not None:
                on_batch(done + 1, len(parts))
    total_loss, total_terms = world.total([loss_sum, terms])
    return task.metrics(total_loss, total_terms)


def move(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device that computes."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
