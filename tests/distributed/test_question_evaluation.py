"""Question answering is measured alike, to the last question, whatever the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paddock.config.layouts import with_layout
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import arithmetic_of
from paddock.evaluation.held_out import evaluate
from paddock.tasks.registry import build_task
from paddock.testing.layouts import small_bert, this_world
from paddock.testing.pool import ProcessPool
from paddock.training.run import engine_for

PoolOf = Callable[[int], ProcessPool]


def measure(rank: int, recipes: list[dict[str, Any]], limit: int | None) -> list[dict[str, float]]:
    """For a pool: the metrics of untrained models."""
    found, world = [], this_world()
    for values in recipes:
        recipe = recipe_from_dict(values)
        task, arithmetic = build_task(recipe), arithmetic_of(recipe, world.size)
        engine = engine_for(recipe, arithmetic, world)
        samples = task.validation_samples()
        found.append(evaluate(task, engine, samples, world, arithmetic.batch.micro, limit))
    return found


@pytest.mark.parametrize("limit", [None, 101])
def test_every_layout_finds_the_same(
    pool_of: PoolOf, tmp_path_factory: pytest.TempPathFactory, limit: int | None
) -> None:
    cache = str(tmp_path_factory.getbasetemp() / "question-cache")
    # Rows of many windows, which no number of processes divides.
    recipe = small_bert(
        "question_answering",
        cache,
        model={"layers": 2, "context": 24},
        data={"sequence_length": 24, "question_length": 8, "stride": 3, "unanswerable": True, "n_best": 5},
        batch={"micro": 7, "global": None, "accumulation": 2},
        train={"seed": 5},  # a first model that is right by chance now and then, with answers and without
    )
    ((alone,),) = pool_of(1).run(measure, [recipe.to_dict()], limit)
    assert set(alone) >= {"exact_match", "f1", "loss"} and alone["has_answer_f1"] > 0 and alone["no_answer_f1"] > 0
    layouts = ["dp2", "pp2", "tp2,sequence=true", "dp2,shard=parameters"]
    every = pool_of(2).run(measure, [with_layout(recipe, name).to_dict() for name in layouts], limit)
    for metrics in (metrics for process in every for metrics in process):
        assert metrics == {name: pytest.approx(value, rel=1e-5) for name, value in alone.items()}
