"""A step computed twice: the same bits in every layout; an error that comes once is found, and the rank it is on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paddock.alignment.trace import Trace
from paddock.config.layouts import with_layout
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.errors import NumericsError
from paddock.parallel.engine import Engine
from paddock.parallel.placement import local
from paddock.testing.layouts import small_recipe, small_t5, trace_recipe
from paddock.testing.pool import ProcessPool

PoolOf = Callable[[int], ProcessPool]
STEPS = 3
RESNET: dict[str, Any] = {
    "model": {"arch": "resnet18", "width": 8, "classes": 4},
    "data": {"source": "synthetic", "image_size": 32, "workers": 0, "training_images": 64, "validation_images": 10},
    "batch": {"micro": None, "global": 8},
    "optimizer": {"lr": 0.05},
    "train": {"steps": STEPS, "epochs": None},
    "evaluate": {"every": None},
}
SHORT: dict[str, Any] = {"model": {"dropout": 0.1}, "train": {"steps": STEPS}}


def gpt2() -> Recipe:
    return small_recipe(**SHORT)


def resnet() -> Recipe:
    return recipe_from_dict(merge(load_recipe("resnet").to_dict(), RESNET))


def replayed(recipe: Recipe) -> dict[str, Any]:
    return recipe_from_dict(merge(recipe.to_dict(), {"train": {"replay_every": 2}})).to_dict()


def both_ways(rank: int, recipes: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[Trace, Trace]]:
    return [(trace_recipe(plain), trace_recipe(twice)) for plain, twice in recipes]


def check_same_bits(pool: ProcessPool, recipes: dict[str, Recipe]) -> None:
    pairs = [(recipe.to_dict(), replayed(recipe)) for recipe in recipes.values()]
    for found in pool.run(both_ways, pairs):
        for name, (plain, twice) in zip(recipes, found, strict=True):
            assert plain.losses == twice.losses and plain.norms == twice.norms, name
            assert len(plain.losses) == STEPS


def test_one_process(pool_of: PoolOf) -> None:
    """With dropout, accumulation, batch norms, recomputation, and fewer bits."""
    recipes = {
        "gpt2": gpt2(),
        "accumulation": with_layout(gpt2(), "dp1,accumulation=4"),
        "recompute": small_recipe(**SHORT, parallel={"recompute": "full"}),
        "bfloat16": small_recipe(**SHORT, precision={"compute": "bfloat16"}),
        "resnet": resnet(),
        "t5": small_t5("t5", **SHORT),
    }
    check_same_bits(pool_of(1), recipes)


LAYOUTS = ["dp2", "dp2,shard=parameters", "dp2,shard=optimizer,accumulation=2", "tp2", "pp2", "pp2,schedule=zbv"]


def test_two_processes(pool_of: PoolOf) -> None:
    recipes = {name: with_layout(gpt2(), name) for name in LAYOUTS}
    check_same_bits(pool_of(2), recipes | {"resnet": with_layout(resnet(), "dp2")})


@pytest.mark.slow
def test_four_processes(pool_of: PoolOf) -> None:
    layouts = ["dp2,tp2,sequence=true", "tp2,pp2,schedule=interleaved", "dp2,pp2,shard=parameters"]
    check_same_bits(pool_of(4), {name: with_layout(gpt2(), name) for name in layouts})


def spoil(tensor: Tensor) -> None:
    with torch.no_grad():
        local(tensor).data.view(-1)[:1] += 0.25


def wrong_once(engine: Engine, module: str, direction: str, call: int) -> None:
    """A layer that computes one number wrong, once. As a device would: no hook of anybody sees the right one."""
    (layer,) = [found for model in engine.models for name, found in model.named_modules() if name == module]
    compute, calls = layer.forward, 0

    def forward(*inputs: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        output = compute(*inputs, **named)
        if calls == call and direction == "forward":
            spoil(output)
        if calls == call and direction == "backward":
            output.register_hook(spoil)
        return output

    if direction == "weight":
        [stage] = [stage for stage in engine.stages.values() if layer in stage.modules()]
        spoil_gradient(layer, [stage, stage.model.get_submodule(".".join(module.split(".")[:2]))], call)
    else:
        layer.forward = forward


def spoil_gradient(layer: nn.Module, around: list[nn.Module], call: int) -> None:
    """The gradient of a layer's weight is wrong, once, before anybody sees it. The weight is there from the beginning,
    or is gathered for the unit that it is in: both are `around` it."""
    calls: Counter[nn.Module] = Counter()
    watched: list[Tensor] = []

    def before(module: nn.Module, inputs: Any) -> None:
        calls[module] += 1
        weight = layer.weight
        if calls[module] == call and not any(weight is one for one in watched):
            watched.append(weight)
            pending = [spoil]
            weight.register_hook(lambda gradient: pending.pop()(gradient) if pending else None)

    for module in around:
        module.register_forward_pre_hook(before)


def goes_wrong(rank: int, values: dict[str, Any], where: int, module: str, direction: str, call: int) -> str:
    """Train with an error in one process; what is said of it."""

    def change(engine: Engine) -> None:
        if rank == where:
            wrong_once(engine, module, direction, call)

    with pytest.raises(NumericsError) as caught:
        trace_recipe(values, change)
    return str(caught.value)


@pytest.mark.parametrize(
    ("layout", "rank", "module"),
    [
        ("dp2", 1, "layers.3.feed_forward.input"),
        ("dp2,shard=parameters", 1, "layers.3.attention.qkv"),
        ("tp2", 1, "layers.2.feed_forward.input"),
        ("pp2", 0, "layers.1.attention.output"),
        pytest.param("pp2", 1, "layers.6.feed_forward.output", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "directions", [("forward", "backward"), pytest.param(("weight",), marks=pytest.mark.slow)], ids="-".join
)
def test_an_error_that_comes_once_is_found(
    pool_of: PoolOf, layout: str, rank: int, module: str, directions: tuple[str, ...]
) -> None:
    micro_batches = 2 if layout.startswith("dp") else 4
    # The second step is replayed: its calls are those after the first step's, and after those of its first time.
    first, second = micro_batches + 1, 2 * micro_batches + 1
    cases = [("forward", first), ("forward", second), ("backward", first), ("weight", second)]
    for direction, call in [case for case in cases if case[0] in directions]:
        recipe = replayed(with_layout(gpt2(), layout))
        words, others = pool_of(2).run(goes_wrong, recipe, rank, module, direction, call)
        assert words == others
        assert f"step 2: computed twice, it is not the same on rank {rank} (on " in words, words
        assert "which of them was first" not in words
        assert f"the {'first' if call == first else 'second'} computation was wrong" in words, words
        assert f"of {module.rpartition('.')[0]}" in words, words


def other_each_time(rank: int, values: dict[str, Any]) -> str:
    numbers = random.Random(0)

    def disturb(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output * (1 + 1e-3 * numbers.random())

    def change(engine: Engine) -> None:
        engine.models[0].get_submodule("layers.0").register_forward_hook(disturb)

    with pytest.raises(NumericsError) as caught:
        trace_recipe(values, change)
    return str(caught.value)


def test_a_device_that_repeats_nothing_is_not_called_broken(pool_of: PoolOf) -> None:
    (said,) = pool_of(1).run(other_each_time, replayed(gpt2()))
    assert "another one each time" in said and "--train.replay-every None" in said
