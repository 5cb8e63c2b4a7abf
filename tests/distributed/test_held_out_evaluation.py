"""Held-out data is measured to the last sample when replicas have different numbers of batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paddock.config.layouts import with_layout
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import arithmetic_of
from paddock.evaluation.held_out import evaluate
from paddock.tasks.registry import build_task
from paddock.testing.layouts import small_recipe, this_world
from paddock.testing.pool import ProcessPool
from paddock.training.run import engine_for

PATIENCE = 120.0
"""Seconds until processes that wait for each other are given up."""


def measure(rank: int, values: dict[str, Any], samples: int) -> dict[str, float]:
    """For a pool: the metrics of an untrained model."""
    recipe, world = recipe_from_dict(values), this_world()
    task, arithmetic = build_task(recipe), arithmetic_of(recipe, world.size)
    engine = engine_for(recipe, arithmetic, world)
    return evaluate(task, engine, task.validation_samples(), world, arithmetic.batch.micro, samples)


@pytest.mark.parametrize(
    ("layout", "processes", "samples"),
    [
        ("dp2,pp2,shard=parameters", 4, 29),  # 7 and 8 batches, in one round
        ("dp2,pp2,shard=parameters", 4, 33),  # 8 and 9: one replica has nothing in the second round
        ("dp2,shard=parameters", 2, 29),
    ],
)
def test_replicas_with_different_numbers_of_batches(
    pool_of: Callable[[int], ProcessPool], layout: str, processes: int, samples: int
) -> None:
    recipe = small_recipe(batch={"micro": 2, "global": 16})
    (alone,) = pool_of(1).run(measure, recipe.to_dict(), samples)
    every = pool_of(processes).run(measure, with_layout(recipe, layout).to_dict(), samples, patience=PATIENCE)
    for metrics in every:
        assert metrics == {name: pytest.approx(value, rel=1e-5) for name, value in alone.items()}
