"""Adafactor in every layout does what it does in one process; its factored state has no layout either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.alignment.divergence import compare
from paddock.alignment.trace import Trace
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.config.layouts import with_layout
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_layout
from paddock.models.registry import example_batch, parameter_names
from paddock.parallel.engine import Engine
from paddock.testing.layouts import small_t5, this_world, trace_all
from paddock.testing.pool import PATIENCE, ProcessPool
from paddock.training.optimization.optimizer import build_optimizer
from paddock.training.run import engine_for

PoolOf = Callable[[int], ProcessPool]
STEPS = 4
LAYOUTS = {
    2: ("dp2", "tp2", "tp2,sequence=true", "pp2", "dp2,shard=optimizer", "dp2,shard=parameters"),
    4: ("dp2,tp2,shard=parameters", "tp2,pp2", "tp4"),
}


def recipe_with(**sections: Any) -> Recipe:
    return small_t5("mt5", optimizer={"name": "adafactor", "lr": 2e-2}, train={"steps": STEPS}, **sections)


@pytest.fixture(scope="module")
def alone(pool_of: PoolOf) -> Trace:
    (traces,) = pool_of(1).run(trace_all, [recipe_with().to_dict()])
    found: Trace = traces[0]
    assert found.losses[-1] < found.losses[0]
    return found


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_layouts_agree(pool_of: PoolOf, alone: Trace, processes: int) -> None:
    recipe, names = recipe_with(), LAYOUTS[processes]
    recipes = [with_layout(recipe, name).to_dict() for name in names]
    traces, *_ = pool_of(processes).run(trace_all, recipes, patience=PATIENCE + 60 * len(names))
    for name, trace in zip(names, traces, strict=True):
        difference = compare(name, asdict(trace), asdict(alone), parameter_names(recipe.model))
        assert difference.agrees, f"{name}: {difference.explain()}"


def take_step(engine: Engine, optimizer: torch.optim.Optimizer, recipe: Recipe, number: int) -> float:
    """One step on 4 samples, of which each data replica takes its part; returns the loss summed over all."""
    mesh, shape = engine.mesh, recipe.data.sample_shape()
    batch = example_batch(recipe.model, 4, shape, seed=number)
    here = {name: values.chunk(mesh.layout.data)[mesh.data_rank] for name, values in batch.items()}
    count = 4 // mesh.layout.data
    micro = [{name: values[index : index + 1] for name, values in here.items()} for index in range(count)]
    engine.train()
    loss = engine.forward_backward(micro, 0.01).double()
    if mesh.grid is not None:
        torch.distributed.all_reduce(loss)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


def go_on(rank: int, values: dict[str, Any], load: Path | None, save: Path | None) -> float:
    """Two steps and a checkpoint, or the third step from one; returns the loss of the third."""
    recipe = recipe_from_dict(values)
    world = this_world()
    engine = engine_for(recipe, check_layout(recipe, world.size), world)
    optimizer = build_optimizer(engine.trained, recipe.optimizer)
    if load is not None:
        load_models(load, engine.models, optimizer)
    else:
        take_step(engine, optimizer, recipe, 0)
    if save is not None:
        write_checkpoint(save, tensors_of(engine.models, optimizer), {"step": 1})
    take_step(engine, optimizer, recipe, 1)
    return take_step(engine, optimizer, recipe, 2)


RESHARD = (
    "tp2,accumulation=4",
    "dp2,shard=parameters,accumulation=2",
    "dp2,shard=optimizer,accumulation=2",
    "pp2,accumulation=4",
)


def test_any_layout_goes_on_from_any(pool_of: PoolOf, tmp_path: Path) -> None:
    recipe = recipe_with(batch={"micro": 1, "global": 4})
    laid_out = {name: with_layout(recipe, name).to_dict() for name in RESHARD}
    (expected,) = pool_of(1).run(go_on, recipe.to_dict(), None, tmp_path / "alone")
    for position, (name, values) in enumerate(laid_out.items()):
        path = tmp_path / f"saved-{position}"
        source = tmp_path / "alone" if position == 0 else tmp_path / f"saved-{position - 1}"
        losses = pool_of(2).run(go_on, values, source, path)  # what another layout saved, saved again by this one
        assert losses == pytest.approx([expected] * 2, rel=1e-5), name
    (last,) = pool_of(1).run(go_on, recipe.to_dict(), path, None)
    assert last == pytest.approx(expected, rel=1e-6)
