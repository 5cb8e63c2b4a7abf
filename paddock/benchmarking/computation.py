"""One iteration of a recipe's model over random samples that never change: a training step, or what an evaluation
asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import nn

from paddock.evaluation.held_out import asked
from paddock.models.build import optimize_for_inference
from paddock.models.config import IGNORED
from paddock.models.registry import example_batch
from paddock.parallel.legality import may_compile
from paddock.parallel.placement import to_device
from paddock.parallel.world import World
from paddock.tasks.registry import task_class
from paddock.training.compilation import compile_units
from paddock.training.optimization.optimizer import build_optimizer
from paddock.training.precision import LossScale
from paddock.training.run import engine_for, rate_for
from paddock.training.step import TrainingStep

if TYPE_CHECKING:
    from paddock.config.recipe import Recipe
    from paddock.config.rules import Arithmetic


def computation(recipe: Recipe, arithmetic: Arithmetic, world: World, trains: bool) -> Callable[[int], object]:
    """What the iteration of a number does, over a global batch."""
    plan, shape = arithmetic.batch, recipe.data.sample_shape()
    mode = recipe.train.compile if may_compile(recipe.parallel) else "off"

    def compile_them(units: Sequence[nn.Module]) -> None:
        compile_units(units, mode, world.adapter, recipe.model.num_parameters())

    engine = engine_for(recipe, arithmetic, world, compile_them)
    first = engine.mesh.data_rank * plan.accumulation
    batches = [
        to_device(example_batch(recipe.model, plan.micro, shape, first + number), world.device)
        for number in range(plan.accumulation)
    ]
    if trains:
        engine.train()
        counts = sum(int((batch["labels"] != IGNORED).sum()) for batch in batches)
        (terms,) = world.all_reduce_sum([counts if engine.leads_replica else 0])
        step = TrainingStep(
            engine,
            build_optimizer(engine.trained, recipe.optimizer),
            LossScale(recipe.precision, world.adapter),
            world,
            learning_rate=rate_for(recipe, 10**6, 1000),
            clip=recipe.optimizer.clip,
            seed=recipe.train.seed,
        )
        return lambda number: step.run(number, batches, terms)
    engine.train(False)
    optimize_for_inference(engine.models)
    questions = [asked(task_class(recipe.task), batch) for batch in batches]
    return lambda _: engine.outputs(questions)
