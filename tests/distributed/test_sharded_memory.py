"""What sharding saves in bfloat16: bytes of weights and gradients that a step holds, counted tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from paddock.config.layouts import with_layout
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import check_layout
from paddock.models.registry import example_batch
from paddock.planning.footprint import footprint
from paddock.testing.layouts import small_recipe, this_world, trace_all
from paddock.testing.live_bytes import LiveBytes
from paddock.testing.pool import ProcessPool
from paddock.training.run import engine_for

PoolOf = Callable[[int], ProcessPool]
WIDE = {"layers": 8, "hidden": 256, "heads": 4, "vocab": 64, "context": 16}
"""Nearly all of it is weights of blocks, and hardly anything activations."""


def held(rank: int, values: dict[str, Any]) -> tuple[int, int]:
    """The most bytes that a forward and backward pass hold besides the shards, and what the dry run says of them."""
    recipe = recipe_from_dict(values)
    world = this_world()
    arithmetic = check_layout(recipe, world.size)
    engine = engine_for(recipe, arithmetic, world)
    engine.train()
    batch = example_batch(recipe.model, 1, recipe.data.sample_shape(), seed=rank)
    with LiveBytes() as live:
        engine.forward_backward([batch], 1.0)
    told = footprint(recipe, arithmetic, engine)
    return live.peak, told.weights + told.gradients - 4 * told.parameters


def measured(pool: ProcessPool, layout: str, compute: str) -> tuple[int, int]:
    recipe = small_recipe(model=WIDE, batch={"micro": 1, "global": 2}, precision={"compute": compute})
    peaks = pool.run(held, with_layout(recipe, layout).to_dict())
    return max(peak for peak, _ in peaks), max(told for _, told in peaks)


def test_sharding_parameters_saves_memory_in_fewer_bits_too(pool_of: PoolOf) -> None:
    """Under autocast alone, which keeps a copy of every gathered weight, bfloat16 would hold more than float32."""
    wide, narrow = (measured(pool_of(2), "dp2,shard=parameters", compute)[0] for compute in ("float32", "bfloat16"))
    assert narrow < 0.85 * wide
    replicated = measured(pool_of(2), "dp2", "bfloat16")[0]
    assert narrow < 0.5 * replicated


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["dp2", "dp2,shard=optimizer", "dp2,shard=parameters"])
def test_the_dry_run_says_what_is_held(pool_of: PoolOf, layout: str, compute: str) -> None:
    peak, told = measured(pool_of(2), layout, compute)
    assert told == pytest.approx(peak, rel=0.3)  # buffers of collectives are left out


def test_the_loss_in_fewer_bits_is_that_of_autocast(pool_of: PoolOf) -> None:
    recipes = [
        with_layout(small_recipe(precision={"compute": "bfloat16"}, train={"steps": 4}), layout).to_dict()
        for layout in ("dp2", "dp2,shard=optimizer", "dp2,shard=parameters")
    ]
    (autocast, *sharded), _ = pool_of(2).run(trace_all, recipes)
    epsilon = torch.finfo(torch.bfloat16).eps
    for trace in sharded:
        for loss, expected in zip(trace.losses, autocast.losses, strict=True):
            assert loss == pytest.approx(expected, rel=2 * epsilon)
