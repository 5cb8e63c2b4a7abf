"""What a model is worth on held-out data: every sample counts once, whatever the number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict

import torch

from paddock.data.loading.loader import BatchLoader
from paddock.data.loading.sampler import by_length, evaluation_batches
from paddock.models.labels import IGNORED
from paddock.parallel.engine import Engine
from paddock.parallel.world import World
from paddock.tasks.task import INDEX, Batch, Judgement, Sample, Task


def evaluate(
    task: Task,
    engine: Engine,
    samples: Sequence[Sample],
    world: World,
    micro: int,
    autocast: torch.autocast,
    limit: int | None = None,
    on_batch: Callable[[int, int], None] | None = None,
    workers: int = 0,
) -> dict[str, float]:
    """Metrics over the first `limit` samples (None: all), of what all processes found together.

    `workers` processes read the samples, as in training; none is a thread.
    """
    count = len(samples) if limit is None else min(limit, len(samples))
    data, rank = engine.mesh.layout.data, engine.mesh.data_rank
    parts: Sequence[Sequence[int]] = evaluation_batches(count, data, rank, micro)
    rounds = -(-len(evaluation_batches(count, data, data - 1, micro)) // engine.batches_at_once)  # the last has most
    if (lengths := getattr(samples, "lengths", None)) is not None:
        mine = [index for part in parts for index in part]
        parts = [[mine[place] for place in part] for part in by_length([int(lengths[index]) for index in mine], micro)]
    found = Judgement({"loss": 0.0, "count": 0.0})
    engine.train(False)
    with BatchLoader(samples, task.collate, parts, engine.batches_at_once, min(workers, len(parts))) as loader:
        for number in range(rounds):
            batches = [task.finish(move(batch, world.device)) for batch in loader.next()]
            if batches:
                found.add(_judge(task, engine, batches, autocast))
            else:  # others still work, and need this process's part of the model
                idle = _asked(task.finish(move(task.collate([samples[0]]), world.device)), task.judges_outputs)
                if "labels" in idle:
                    idle["labels"] = torch.full_like(idle["labels"], IGNORED)
                engine.outputs([idle], autocast)
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
        return Judgement(
            {"loss": engine.forward([_asked(batch, False) for batch in batches], autocast), "count": terms}
        )
    found = Judgement()
    questions = [_asked(batch, True) for batch in batches]
    for batch, outputs in zip(batches, engine.outputs(questions, autocast), strict=False):  # maybe none are here
        found.add(task.judge(batch, outputs.float()))
    return found


def _asked(batch: Batch, judged: bool) -> Batch:
    """What the model gets of a batch; labels only where its loss is all there is to see."""
    held_back = (INDEX, "labels") if judged else (INDEX,)
    return {name: tensor for name, tensor in batch.items() if name not in held_back}


def move(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device that computes."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
