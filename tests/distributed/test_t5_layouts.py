"""T5 and mT5 in every layout compute what one process does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict

import pytest

from paddock.alignment.divergence import compare
from paddock.alignment.trace import Trace
from paddock.config.layouts import legal_layouts, with_layout
from paddock.models.registry import parameter_names
from paddock.testing.layouts import small_t5, trace_all
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


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("processes", [2, 4, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_all_layouts_agree(pool_of: PoolOf, alone: dict[str, Trace], kind: str, processes: int) -> None:
    names = legal_layouts(small_t5(kind), processes)
    assert len(names) > 5 * processes
    assert disagreements(pool_of(processes), kind, names, alone[kind]) == []
