"""What a model is worth on held-out data: every sample counts once, whatever the number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from paddock.data.loading.loader import BatchLoader
from paddock.data.loading.sampler import by_length, by_tokens, evaluation_batches
from paddock.evaluation.text_scores import TextScorer, text_metrics
from paddock.evaluation.written import OpenModel, judge_written, whole_model
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
    on_found: Callable[[Judgement], None] | None = None,
    open_model: OpenModel | None = None,
) -> dict[str, float]:
    """Metrics over the first `limit` samples (None: all), of what all processes found together; `on_found` gets that.

    `workers` processes read the samples, as in training; none is a thread. With `writing`, the model also writes what
    it makes of the samples: `open_model` gives one that can, where no process has the whole of the engine's.
    """
    scorer = TextScorer(writing.language) if writing is not None else None
    count = len(samples) if limit is None else min(limit, len(samples))
    data, rank = engine.mesh.layout.data, engine.mesh.data_rank
    shares = [batches_of_replica(samples, count, data, replica, micro) for replica in range(data)]
    parts, rounds = shares[rank], micro_batches_per_round(max(map(len, shares)), engine.batches_at_once)
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
        opened = open_model or partial(whole_model, *engine.models)
        found.add(judge_written(writing, [index for part in parts for index in part], scorer, opened))
    engine.train()
    everything = Judgement()
    for told in world.all_gather(json.dumps(asdict(found))):
        everything.add(Judgement(**json.loads(told)))
    if on_found is not None:
        on_found(everything)
    return task.metrics(everything) | ({} if scorer is None else text_metrics(everything.sums))


def batches_of_replica(
    samples: Sequence[Sample], count: int, data: int, replica: int, micro: int
) -> Sequence[Sequence[int]]:
    """Which of the first `count` samples one of `data` replicas looks at together: `micro` at a time; where their
    lengths are known, those of like length, and where `tokens_at_once` says so, as many as have so many tokens."""
    batches = evaluation_batches(count, data, replica, micro)
    if (known := getattr(samples, "lengths", None)) is None:
        return batches
    share = [index for batch in batches for index in batch]
    lengths, most = [int(known[index]) for index in share], getattr(samples, "tokens_at_once", None)
    chosen = by_length(lengths, micro) if most is None else by_tokens(lengths, most)
    return [[share[place] for place in batch] for batch in chosen]


def micro_batches_per_round(most: int, at_once: int) -> list[int]:
    """How many forward passes every replica runs in each round: in all as many as the replica with `most` needs.

    Replicas that share parameters gather them for every pass, so all of them run the same number, whether or not they
    have samples left. Each finds that number by itself.
    """
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
