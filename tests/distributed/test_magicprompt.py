"""Training from plain text in layouts of four processes: the same losses and gradients as one process, for packed and
for padded samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from paddock.alignment.divergence import compare
from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import arithmetic_of
from paddock.evaluation.held_out import evaluate
from paddock.models.registry import parameter_names
from paddock.tasks.registry import build_task
from paddock.testing.layouts import this_world, trace_all
from paddock.testing.pool import ProcessPool
from paddock.testing.samples.texts import write_prompts
from paddock.training.run import engine_for

PoolOf = Callable[[int], ProcessPool]
LAYOUTS = ["dp4", "tp2,pp2"]
SAMPLES: dict[str, dict[str, Any]] = {"packed": {}, "padded": {"samples": "padded", "truncate": True}}


def recipe_of(folder: Path, samples: str) -> Recipe:
    """MagicPrompt, tiny: a vocabulary that two processes do not share evenly."""
    changes = {
        "model": {"layers": 4, "hidden": 32, "heads": 4, "vocab": 401, "context": 24, "dropout": 0.0},
        "data": {
            **{"path": str(write_prompts(folder / "prompts.txt", 60)), "sequence_length": 24},
            **{"cache": str(folder / "cache"), **SAMPLES[samples]},
        },
        "batch": {"micro": 2, "global": 8},
        "train": {"steps": 4},
        "schedule": {"warmup": 2},
    }
    return recipe_from_dict(merge(load_recipe("gpt2/magicprompt-tiny").to_dict(), changes))


def losses_held_out(rank: int, recipes: list[dict[str, Any]]) -> list[float]:
    """For a pool: what untrained models lose on the validation part."""
    found, world = [], this_world()
    for values in recipes:
        recipe = recipe_from_dict(values)
        task, arithmetic = build_task(recipe), arithmetic_of(recipe, world.size)
        engine = engine_for(recipe, arithmetic, world)
        found.append(evaluate(task, engine, task.validation_samples(), world, arithmetic.batch.micro)["loss"])
    return found


@pytest.mark.parametrize("samples", SAMPLES)
def test_layouts_train_and_evaluate_alike(pool_of: PoolOf, tmp_path: Path, samples: str) -> None:
    recipe = recipe_of(tmp_path, samples)
    layouts = [with_layout(recipe, name).to_dict() for name in LAYOUTS]
    ((alone,),) = pool_of(1).run(trace_all, [recipe.to_dict()])
    for traces in pool_of(4).run(trace_all, layouts):
        for name, trace in zip(LAYOUTS, traces, strict=True):
            difference = compare(name, asdict(trace), asdict(alone), parameter_names(recipe.model))
            assert difference.agrees, f"{name}: {difference.explain()}"
    ((held_out,),) = pool_of(1).run(losses_held_out, [recipe.to_dict()])
    for found in pool_of(4).run(losses_held_out, layouts):
        assert found == [pytest.approx(held_out, rel=1e-5)] * len(LAYOUTS)
