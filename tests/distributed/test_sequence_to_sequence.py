"""Sequence to sequence in layouts of two processes: the same smoothed loss in training, the same evaluation, to the
last pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from paddock.alignment.divergence import compare
from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import arithmetic_of
from paddock.evaluation import held_out
from paddock.evaluation.written import judge_written
from paddock.inference.generation.options import GenerationOptions
from paddock.models.registry import parameter_names
from paddock.tasks.registry import build_task
from paddock.testing.layouts import T5, this_world, trace_all
from paddock.testing.pool import ProcessPool
from paddock.training.run import engine_for

PoolOf = Callable[[int], ProcessPool]
LAYOUTS = ["dp2", "pp2", "tp2", "tp2,sequence=true", "dp2,shard=parameters"]


def recipe_in(cache: Path) -> Recipe:
    """Words to be reversed, for a small T5 whose labels are smoothed; a vocabulary that two do not share evenly."""
    changes = {
        **{name: section for name, section in T5.items() if name not in ("data", "tokenizer")},
        "model": {**T5["model"], "vocab": 301, "label_smoothing": 0.2},
        "data": {"cache": str(cache), "target_length": 24, "sequence_length": 24},
        "train": {"steps": 2},
    }
    return recipe_from_dict(merge(load_recipe("t5/reverse").to_dict(), changes))


def turn_round(model: nn.Module, sources: Sequence[Sequence[int]], options: GenerationOptions) -> list[list[int]]:
    """Stands in for a model that turns round what it reads, token by token."""
    return [list(source[-2::-1]) for source in sources]


def measure(rank: int, recipes: list[dict[str, Any]], limit: int | None) -> list[dict[str, float]]:
    """For a pool: the metrics of untrained models, and of what a stand-in writes where models are whole."""
    found, world = [], this_world()
    held_out.judge_written = partial(judge_written, write=turn_round)  # type: ignore[assignment]
    try:
        for values in recipes:
            recipe = recipe_from_dict(values)
            task, arithmetic = build_task(recipe), arithmetic_of(recipe, world.size)
            engine, samples = engine_for(recipe, arithmetic, world), task.validation_samples()
            writing = task.writing(during_training=False)
            micro = arithmetic.batch.micro
            found.append(held_out.evaluate(task, engine, samples, world, micro, limit, writing=writing))
    finally:
        held_out.judge_written = judge_written
    return found


def test_layouts_train_alike(pool_of: PoolOf, tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path)
    ((alone,),) = pool_of(1).run(trace_all, [recipe.to_dict()])
    first, second = pool_of(2).run(trace_all, [with_layout(recipe, name).to_dict() for name in LAYOUTS])
    assert first == second
    for name, trace in zip(LAYOUTS, first, strict=True):
        difference = compare(name, asdict(trace), asdict(alone), parameter_names(recipe.model))
        assert difference.agrees, f"{name}: {difference.explain()}"


@pytest.mark.parametrize("limit", [None, 33])
def test_layouts_evaluate_alike(pool_of: PoolOf, tmp_path: Path, limit: int | None) -> None:
    recipe = recipe_in(tmp_path)
    ((alone,),) = pool_of(1).run(measure, [recipe.to_dict()], limit)
    assert set(alone) == {"loss", "token_accuracy", "exact_match", "bleu", "rouge_l"} and alone["bleu"] > 0
    for process in pool_of(2).run(measure, [with_layout(recipe, name).to_dict() for name in LAYOUTS], limit):
        for name, metrics in zip(LAYOUTS, process, strict=True):
            wanted = {key: alone[key] for key in (alone if name == "dp2" else ("loss", "token_accuracy"))}
            assert metrics == {key: pytest.approx(value, rel=1e-5) for key, value in wanted.items()}, name
