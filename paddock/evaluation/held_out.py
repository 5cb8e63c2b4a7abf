"""What a model is worth on held-out data: every sample counts once, whatever the number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from paddock.data.loading.loader import BatchLoader
from paddock.data.loading.sampler import by_length, evaluation_batches
from paddock.evaluation.text_scores import TextScorer, text_metrics
from paddock.evaluation.written import judge_written
from paddock.models.model import Model
from paddock.parallel.engine import Engine
from paddock.parallel.placement import to_device
from paddock.parallel.world import World
from paddock.process import progress
from paddock.tasks.task import INDEX, Batch, Judgement, Sample, Task, Writing


def evaluate(
    task: Task,
    engine: Engine,
    samples: Sequence[Sample],
    world: World,
    micro: int,
    limit: int | None = None,
    on_batch: Callable[[int, int], None] | None = None,
    workers: int = 0,
    writing: Writing | None = None,
) -> dict[str, float]:
    """Metrics over the first `limit` samples (None: all), of what all processes found together.

    `workers` processes read the samples, as in training; none is a thread. With `writing`, models that are whole in
    each process also write what they make of the samples.
    """
    scorer = TextScorer(writing.language) if writing is not None and engine.has_whole_model else None
    count = len(samples) if limit is None else min(limit, len(samples))
    data, rank = engine.mesh.layout.data, engine.mesh.data_rank
    parts: Sequence[Sequence[int]] = evaluation_batches(count, data, rank, micro)
    rounds = micro_batches_per_round(count, data, micro, engine.batches_at_once)
    if (lengths := getattr(samples, "lengths", None)) is not None:
        mine = [index for part in parts for index in part]
        parts = [[mine[place] for place in part] for part in by_length([int(lengths[index]) for index in mine], micro)]
    found = Judgement({"loss": 0.0, "count": 0.0})
    idle: list[Batch] = []
    if len(parts) < sum(rounds):
        idle.append(task.transform_on_device(to_device(task.collate([samples[0]]), world.device)))
    engine.train(False)
    with BatchLoader(samples, task.collate, parts, engine.batches_at_once, min(workers, len(parts))) as loader:
        for number, size in enumerate(rounds, start=1):
            batches = [task.transform_on_device(to_device(batch, world.device)) for batch in loader.next()]
            found.add(_judge(task, engine, batches, idle * (size - len(batches))))
            progress()
            if on_batch is not None:
                on_batch(number, len(rounds))
    if writing is not None and scorer is not None:
        (model,) = engine.models
        assert isinstance(model, Model), "rules.py admits whole models only"
        found.add(judge_written(writing, model, [index for part in parts for index in part], scorer))
    engine.train()
    everything = Judgement()
    for told in world.all_gather(json.dumps(asdict(found))):
        everything.add(Judgement(**json.loads(told)))
    return task.metrics(everything) | ({} if scorer is None else text_metrics(everything.sums))


def micro_batches_per_round(count: int, data: int, micro: int, at_once: int) -> list[int]:
    """How many forward passes every replica runs in each round: as many as the replica with most samples needs.

    Replicas that share parameters gather them for every pass, so all of them run the same number, whether or not they
    have samples left. Each finds that number by itself.
    """
    most = len(evaluation_batches(count, data, data - 1, micro))  # the last share is the largest
    return [min(at_once, most - first) for first in range(0, most, at_once)]


def _judge(task: Task, engine: Engine, batches: Sequence[Batch], idle: Sequence[Batch]) -> Judgement:
    """This process's part of what there is to say of these batches, after which the model computes `idle` ones too."""
    found = Judgement()
    questions = [asked(task, batch) for batch in (*batches, *idle)]
    # What idle batches put out is dropped; a process that is not the last of a pipeline gets no outputs at all.
    outputs = zip(batches, engine.outputs(questions), strict=False)
    if task.judges_outputs:
        for batch, output in outputs:
            found.add(task.judge(batch, output.float()))
        return found
    terms = sum(task.count(batch) for batch in batches) if engine.leads_replica else 0
    return Judgement({"loss": sum(float(loss) for _, loss in outputs), "count": terms})


def asked(task: Task | type[Task], batch: Batch) -> Batch:
    """What the model gets of a batch. Labels are for a loss, where that is all there is to see, or what it is asked to
    score; else they are held back."""
    called = {"labels": "targets"} if task.judges_labels else {}
    held_back = (INDEX, "labels") if task.judges_outputs and not task.judges_labels else (INDEX,)
    return {called.get(name, name): tensor for name, tensor in batch.items() if name not in held_back}
