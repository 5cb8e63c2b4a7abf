"""T5 and mT5 in every layout compute what one process does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from paddock.alignment.divergence import compare
from paddock.alignment.trace import Trace
from paddock.config.layouts import legal_layouts, with_layout, world_of_layout
from paddock.config.load import load_recipe
from paddock.models.layers.rms_norm import RMSNorm
from paddock.models.registry import parameter_names
from paddock.parallel.engine import Engine
from paddock.parallel.placement import local
from paddock.testing.layouts import small_t5, trace_all, trace_recipe
from paddock.testing.pool import PATIENCE, ProcessPool

PoolOf = Callable[[int], ProcessPool]
STEPS = 3
KINDS = ("t5", "mt5")
OFTEN = {2: 5, 4: 5}
"""How many of the legal layouts of a number of processes `make test` tries."""


@pytest.fixture(scope="module")
def alone(pool_of: PoolOf) -> dict[str, Trace]:
    """A few steps of one process, for each kind."""
    recipes = [small_t5(kind, train={"steps": STEPS}).to_dict() for kind in KINDS]
    (traces,) = pool_of(1).run(trace_all, recipes)
    return dict(zip(KINDS, traces, strict=True))


def disagreements(pool: ProcessPool, kind: str, layouts: list[str], expected: Trace) -> list[str]:
    """What is wrong with these layouts, in words."""
    recipe = small_t5(kind, train={"steps": STEPS})
    recipes = [with_layout(recipe, name).to_dict() for name in layouts]
    first, *others = pool.run(trace_all, recipes, patience=PATIENCE + 60 * len(layouts))
    found = [f"{layouts}: processes disagree with one another"] if any(other != first for other in others) else []
    for name, trace in zip(layouts, first, strict=True):
        difference = compare(name, asdict(trace), asdict(expected), parameter_names(recipe.model))
        found += [] if difference.agrees else [f"{name}: {difference.explain()}"]
    return found


@pytest.mark.parametrize("processes", sorted(OFTEN))
@pytest.mark.parametrize("kind", KINDS)
def test_some_layouts_agree(pool_of: PoolOf, alone: dict[str, Trace], kind: str, processes: int) -> None:
    names = legal_layouts(small_t5(kind), processes)
    longest = f"pp{processes}"  # the groups of what its stages share overlap
    chosen = [longest, *random.Random(4).sample([name for name in names if name != longest], OFTEN[processes])]
    assert longest in names
    assert disagreements(pool_of(processes), kind, chosen, alone[kind]) == []


@pytest.mark.parametrize("mode", ["selective", pytest.param("full", marks=pytest.mark.slow)])
def test_recomputing_changes_nothing(pool_of: PoolOf, alone: dict[str, Trace], mode: str) -> None:
    layouts = ["dp2,shard=parameters", "tp2,sequence=true", "pp2,schedule=interleaved"]
    names = [f"{layout},recompute={mode}" for layout in layouts]
    assert disagreements(pool_of(2), "mt5", names, alone["mt5"]) == []


def norms_of(rank: int, values: dict[str, Any]) -> dict[str, tuple[str, str, float]]:
    """Of every norm in a training step, what it was given, what it gave, and how far that is from float64."""
    found: dict[str, tuple[str, str, float]] = {}

    def note(name: str, norm: RMSNorm, given: tuple[Tensor], came: Tensor) -> None:
        x, weight, came = (local(one).detach() for one in (given[0], norm.weight, came))
        exact = torch.nn.functional.rms_norm(x.double(), weight.shape, weight.double(), norm.eps)
        found[name] = (str(x.dtype), str(came.dtype), float((came - exact).abs().max() / exact.abs().max()))

    def watch(engine: Engine) -> None:
        for model in engine.models:
            for name, module in model.named_modules():
                if isinstance(module, RMSNorm):
                    module.register_forward_hook(partial(note, name))

    trace_recipe(values, watch)
    return found


@pytest.mark.parametrize("layout", ["dp1", "dp2,shard=parameters", "tp2,sequence=true"])
def test_norms_stay_in_float32(pool_of: PoolOf, layout: str) -> None:
    """In T5's own mixed precision, which is bfloat16, though weights are gathered in that where they are sharded."""
    recipe = with_layout(small_t5("t5", train={"steps": 1}, precision=load_recipe("t5").precision.model_dump()), layout)
    assert recipe.precision.compute == "bfloat16"
    parts = pool_of(world_of_layout(recipe).world).run(norms_of, recipe.to_dict())
    assert {name for part in parts for name in part} == {
        name.removesuffix(".weight") for name in parameter_names(recipe.model) if "norm" in name
    }
    for name, (given, came, difference) in (one for part in parts for one in part.items()):
        assert (given, came) == ("torch.float32", "torch.float32"), name
        assert difference < 1e-5, name


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("processes", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_all_layouts_agree(pool_of: PoolOf, alone: dict[str, Trace], kind: str, processes: int) -> None:
    names = legal_layouts(small_t5(kind), processes)
    assert len(names) > 5 * processes
    assert disagreements(pool_of(processes), kind, names, alone[kind]) == []
