"""The numbers of a few training steps, kept in memory: what two layouts are compared by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paddock.config.recipe import Recipe
from paddock.config.rules import check_recipe
from paddock.data.loading.loader import StepLoader
from paddock.data.loading.sampler import Sampler
from paddock.models.registry import parameter_names
from paddock.parallel.engine import Engine
from paddock.parallel.world import World
from paddock.tasks.task import Batch, Task
from paddock.training.feed import StepFeed
from paddock.training.optimization.optimizer import build_optimizer
from paddock.training.precision import LossScale
from paddock.training.run import chosen_products, engine_for, rate_for
from paddock.training.step import TrainingStep


@dataclass
class Trace:
    """Loss and gradient norms, step by step."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    """Of the whole gradient."""
    tensors: list[list[float]] = field(default_factory=list)
    """Of the gradient of each parameter, in the model's order."""
    scales: list[float] = field(default_factory=list)
    """The loss scale after each step."""


@contextmanager
def computing_in(number_type: str) -> Iterator[None]:
    """Models that are made here have weights of this type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, number_type))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def in_default_type(batch: Mapping[str, Tensor]) -> Batch:
    """A batch as models want it whose weights have torch's default type."""
    return {
        name: values.to(torch.get_default_dtype()) if values.is_floating_point() else values
        for name, values in batch.items()
    }


def record_trace(
    recipe: Recipe, task: Task, world: World, prepare_engine: Callable[[Engine], None] | None = None
) -> Trace:
    """Train the recipe in its layout, by the steps of a real run, and write nothing.

    `prepare_engine` may change the model before the first step.
    """
    arithmetic = check_recipe(recipe, world.size)
    batch, steps = arithmetic.batch, recipe.train.steps
    assert steps is not None
    samples = task.training_samples()
    engine = engine_for(recipe, arithmetic, world)
    if prepare_engine is not None:
        prepare_engine(engine)
    scale = LossScale(recipe.precision, world.adapter)
    step = TrainingStep(
        engine,
        build_optimizer(engine.trained, recipe.optimizer),
        scale,
        world,
        learning_rate=rate_for(recipe, steps, samples.samples_per_epoch / batch.total),
        clip=recipe.optimizer.clip,
        seed=recipe.train.seed,
        replay_every=recipe.train.replay_every,
    )
    names = parameter_names(recipe.model)
    sampler = Sampler(batch.micro, batch.accumulation, batch.data, engine.mesh.data_rank)
    trace = Trace()
    engine.train()
    with (
        chosen_products(recipe, world),
        StepLoader(samples, sampler, task.collate, 0, steps * batch.total) as loader,
    ):
        feed = StepFeed(loader, task, world, steps=steps, counts=engine.leads_replica)
        for number in range(steps):
            work = feed.take()
            step.launch(number, [in_default_type(batch) for batch in work.batches], work.terms)
            result = step.complete(before_update=lambda: trace.tensors.append(engine.gradient_norms(names)))
            trace.losses.append(result.loss)
            trace.norms.append(result.norm)
            trace.scales.append(scale.value)
    return trace
