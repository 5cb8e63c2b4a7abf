"""Sequence to sequence in layouts of two processes: the same smoothed loss in training, the same evaluation, to the
last pair."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paddock.alignment.divergence import compare
from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import arithmetic_of
from paddock.evaluation import held_out
from paddock.evaluation.written import judge_written, model_in_parts, whole_model
from paddock.inference.generation.options import GenerationOptions
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model, parameter_names
from paddock.parallel.config import ParallelConfig, derive_layout
from paddock.tasks.registry import build_task
from paddock.tasks.task import Judgement
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


def turn_round(sources: Sequence[Sequence[int]], options: GenerationOptions) -> list[list[int]]:
    """Stands in for a model that turns round what it reads, token by token."""
    return [list(source[-2::-1]) for source in sources]


def measure(rank: int, recipes: list[dict[str, Any]], limit: int | None) -> list[dict[str, float]]:
    """For a pool: the metrics of untrained models, and of what a stand-in writes for one process of a replica."""
    found, world = [], this_world()
    for values in recipes:
        recipe = recipe_from_dict(values)
        task, arithmetic = build_task(recipe), arithmetic_of(recipe, world.size)
        engine, samples = engine_for(recipe, arithmetic, world), task.validation_samples()
        stand_in = nullcontext(turn_round if engine.leads_replica else None)
        writing, micro = task.writing(during_training=False), arithmetic.batch.micro
        how = {"writing": writing, "open_model": lambda stand_in=stand_in: stand_in}
        found.append(held_out.evaluate(task, engine, samples, world, micro, limit, **how))
    return found


class Listener:
    """Stands in for a scorer: what was written, in numbers that add up."""

    def sums(self, text: str, reference: str) -> dict[str, float]:
        return {"texts": 1.0, "sum": float(zlib.crc32(f"{text}|{reference}".encode()))}


def write_all(rank: int, values: dict[str, Any], layouts: list[dict[str, int]]) -> list[dict[str, float]]:
    """For a pool: sums over what this process led the writing of, in each layout."""
    found, world, recipe = [], this_world(), recipe_from_dict(values)
    writing = build_task(recipe).writing(during_training=False)
    assert writing is not None
    for sizes in layouts:
        layout = derive_layout(ParallelConfig(**sizes), world.size)
        share = range(rank // layout.tensor % layout.data, 9, layout.data)
        opened = partial(model_in_parts, recipe.model, partial(initialize, seed=1), layout, world)
        if world.size == 1:
            model = build_model(recipe.model).eval()
            initialize(model, seed=1)
            opened = partial(whole_model, model)
        found.append(judge_written(writing, share, Listener(), opened).sums)  # type: ignore[arg-type]
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
            assert metrics == {key: pytest.approx(value, rel=1e-5) for key, value in alone.items()}, name


def test_layouts_write_alike(pool_of: PoolOf, tmp_path: Path) -> None:
    values = recipe_from_dict(merge(recipe_in(tmp_path).to_dict(), {"model": {"init_factor": 3.0}})).to_dict()
    ((alone,),) = pool_of(1).run(write_all, values, [{}])
    assert alone["texts"] == 9
    layouts = [{}, {"tensor": 2}, {"pipeline": 2}]
    for sizes, *parts in zip(layouts, *pool_of(2).run(write_all, values, layouts), strict=True):
        together = Judgement()
        for part in parts:
            together.add(Judgement(part))
        assert together.sums == alone, sizes
