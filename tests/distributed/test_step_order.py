"""What a step does when: weights gathered ahead of their use, number types chosen for the forward pass alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from paddock.config.layouts import with_layout
from paddock.config.rules import check_layout
from paddock.parallel.engine import Engine
from paddock.planning.dry_run import build_one
from paddock.testing.layouts import small_recipe, small_t5, trace_recipe
from paddock.testing.pool import ProcessPool

PoolOf = Callable[[int], ProcessPool]
LAYERS = 4


def recipe_in(layout: str, **sections: Any) -> dict[str, Any]:
    return with_layout(small_recipe(model={"layers": LAYERS}, train={"steps": 1}, **sections), layout).to_dict()


class Gathers(TorchDispatchMode):
    """Counts the gathers that have begun."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "allgather" in str(func)
        return func(*args, **(kwargs or {}))


def gathered_when_units_begin(rank: int, values: dict[str, Any]) -> list[int]:
    """How many gathers have begun when each unit begins its forward pass."""
    seen: list[int] = []

    def watch(engine: Engine) -> None:
        (stage,) = engine.stages.values()
        for unit in stage.unit_modules():
            unit.register_forward_pre_hook(lambda module, inputs: seen.append(gathers.count))

    with Gathers() as gathers:
        trace_recipe(values, watch)
    return seen


def test_the_next_unit_is_gathered_while_one_computes(pool_of: PoolOf) -> None:
    values = recipe_in("dp2,shard=parameters", batch={"micro": 8, "global": 16})
    for seen in pool_of(2).run(gathered_when_units_begin, values):
        assert len(seen) == LAYERS
        before = seen[0] - 2  # what the model holds besides its units
        assert before >= 1
        assert seen == [before + min(unit + 2, LAYERS) for unit in range(LAYERS)]


def autocast_around(rank: int, values: dict[str, Any]) -> tuple[set[bool], set[bool]]:
    """Whether forward and backward passes of units run under autocast."""
    forward: set[bool] = set()
    backward: set[bool] = set()

    def watch(engine: Engine) -> None:
        for stage in engine.stages.values():
            for unit in stage.unit_modules():
                unit.register_forward_pre_hook(lambda *_: forward.add(torch.is_autocast_enabled("cpu")))
                weight = next(unit.parameters())
                weight.register_hook(lambda _: backward.add(torch.is_autocast_enabled("cpu")))

    trace_recipe(values, watch)
    return forward, backward


@pytest.mark.parametrize("layout", ["pp2,schedule=1f1b", "pp2,schedule=gpipe"])
def test_a_pipeline_goes_backward_without_autocast(pool_of: PoolOf, layout: str) -> None:
    """A schedule goes backward between two forward passes: autocast around it would be around both."""
    values = recipe_in(layout, precision={"compute": "bfloat16"})
    assert pool_of(2).run(autocast_around, values) == [({True}, {False})] * 2


def test_a_set_of_stages_makes_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each column of processes that hold them: a job of many columns would wait for all of them."""
    recipe = with_layout(small_t5("t5", batch={"micro": 4, "global": 32}), "dp2,tp2,pp4")
    width, column = 4, 1
    made: list[list[tuple[int, ...]]] = []
    make = dist.new_group

    def counted(ranks: list[int], *arguments: Any, use_local_synchronization: bool = False, **named: Any) -> Any:
        if use_local_synchronization:
            made[-1].append(tuple(rank // width for rank in ranks))
            assert {rank % width for rank in ranks} == {column}
        return make(ranks, *arguments, use_local_synchronization=use_local_synchronization, **named)

    monkeypatch.setattr(dist, "new_group", counted)
    for stage in range(4):
        made.append([])
        build_one(recipe, check_layout(recipe, 16), stage * width + column)
    shared = {stages for groups in made for stages in groups if len(stages) > 1}
    assert len(shared) == 3  # the embedding, and the position bias of each stack
    assert [len(groups) for groups in made] == [3] * 4
