"""What a model is worth on held-out data: every sample counts once, whatever the number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict

import torch

from paddock.data.sampler import share
from paddock.models.labels import IGNORED
from paddock.parallel.engine import Engine
from paddock.parallel.world import World
from paddock.tasks.task import Batch, Judgement, Sample, Task


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
    """Metrics over the first `limit` samples (None: all), of what all processes found together."""
    count = len(samples) if limit is None else min(limit, len(samples))
    data, rank = engine.mesh.layout.data, engine.mesh.data_rank
    parts = share(count, data, rank, micro)
    rounds = -(-len(share(count, data, data - 1, micro)) // engine.batches_at_once)  # the last share is the largest
    found = Judgement({"loss": 0.0, "count": 0.0})
    engine.train(False)
    for number in range(rounds):
        here = parts[number * engine.batches_at_once : (number + 1) * engine.batches_at_once]
        batches = [move(task.collate([samples[index] for index in part]), world.device) for part in here]
        if batches:
            found.add(_judge(task, engine, batches, autocast))
        else:  # others still work, and need this process's part of the model
            idle = move(task.collate([samples[0]]), world.device)
            engine.outputs([{**idle, "labels": torch.full_like(idle["labels"], IGNORED)}], autocast)
        if on_batch is not None:
            on_batch(number + 1, rounds)
    engine.train()
    everything = Judgement()
    for told in world.gather(json.dumps(asdict(found))):
        everything.add(Judgement(**json.loads(told)))
    return task.metrics(everything)


def _judge(task: Task, engine: Engine, batches: Sequence[Batch], autocast: AbstractContextManager[None]) -> Judgement:
    """This process's part of what there is to say of these batches."""
    if not task.judges_outputs:
        terms = sum(task.count(batch) for batch in batches) if engine.speaks_for_data else 0
        return Judgement({"loss": engine.forward(batches, autocast), "count": terms})
    found = Judgement()
    questions = [{name: tensor for name, tensor in batch.items() if name != "labels"} for batch in batches]
    for batch, outputs in zip(batches, engine.outputs(questions, autocast), strict=False):  # maybe none are here
        found.add(task.judge(batch, outputs.float()))
    return found


def move(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device that computes."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
