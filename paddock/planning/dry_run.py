"""Building a job's model for any number of processes on a machine that has none of their devices.

Every process is played in turn by this one: torch's fake process group answers in place of all the others, and the
model has shapes but no memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from paddock.config.recipe import Recipe
from paddock.config.rules import Arithmetic, check_layout
from paddock.errors import bad_value
from paddock.models.build import build_engine
from paddock.parallel.mesh import build_mesh
from paddock.planning.footprint import Footprint, bubble_of, draw, footprint
from paddock.telemetry import format as show


def dry_run(name: str, recipe: Recipe, world: int, rank: int, as_json: bool) -> None:
    """Print how the recipe lies over `world` processes, and what `rank` holds and does."""
    arithmetic = check_layout(recipe, world)
    if not 0 <= rank < world:
        raise bad_value("--rank", rank, f"{world} processes are ranks 0 to {world - 1}", f"choose one below {world}")
    processes = build_all(recipe, arithmetic, rank)
    here = next(process for process in processes if process.rank == rank)
    bubble = bubble_of(recipe, arithmetic)
    if as_json:
        print(json.dumps(_summary(recipe, arithmetic, bubble, processes, here)))
        return
    parameters = show.count(recipe.model.num_parameters())
    print(f"{name}: {parameters} parameters over {world} process{'es' if world > 1 else ''}")
    print(f"layout    {arithmetic.layout}, shard {recipe.parallel.shard}, recompute {recipe.parallel.recompute}")
    print(f"batch     {arithmetic.batch}; {recipe.data.describe_sample()}")
    if arithmetic.layout.pipeline > 1:
        print(f"schedule  {recipe.parallel.schedule}: a process waits {show.percent(bubble)} of a step for others")
    print()
    print("\n".join(draw(arithmetic, processes)))
    print()
    print("\n".join(_details(here)))


def build_all(recipe: Recipe, arithmetic: Arithmetic, rank: int) -> list[Footprint]:
    """What every process of the pipeline holds: `rank` itself, and of its peers those with the first shards."""
    width = arithmetic.layout.data * arithmetic.layout.tensor
    ranks = [rank if place == rank // width else place * width for place in range(arithmetic.layout.pipeline)]
    return [build_one(recipe, arithmetic, member) for member in ranks]


def build_one(recipe: Recipe, arithmetic: Arithmetic, rank: int) -> Footprint:
    """What one process would hold."""
    layout, batch = arithmetic.layout, arithmetic.batch
    with fake_world(rank, layout.world):
        engine = build_engine(
            recipe.model,
            recipe.parallel,
            build_mesh(layout, rank, "cpu"),
            torch.device("cpu"),
            micro=batch.micro,
            shape=recipe.data.sample_shape(),
            micro_batches=batch.accumulation,
            compute=getattr(torch, recipe.precision.compute),
            allocate=False,
        )
        return footprint(recipe, arithmetic, engine)


@contextmanager
def fake_world(rank: int, size: int) -> Iterator[None]:
    """Be `rank` among processes that do not exist: they take everything and answer anything."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _details(here: Footprint) -> list[str]:
    stages = ", ".join(f"stage {stage}" for stage in here.stages)
    sends = ", ".join(f"{show.bytes_(amount)} over {name}" for name, amount in here.sends.items() if amount)
    return [
        f"rank {here.rank} has {stages}: {here.parameters:,} parameters",
        f"  weights    {show.bytes_(here.weights)}",
        f"  gradients  {show.bytes_(here.gradients)}",
        f"  optimizer  {show.bytes_(here.optimizer)}",
        f"  together   {show.bytes_(here.memory)} at the most, before activations",
        f"  sends      {sends or 'nothing'}" + (" in a step" if sends else ""),
    ]


def _summary(
    recipe: Recipe, arithmetic: Arithmetic, bubble: float, processes: Sequence[Footprint], here: Footprint
) -> dict[str, Any]:
    layout, batch = arithmetic.layout, arithmetic.batch
    return {
        "parameters": recipe.model.num_parameters(),
        "world": layout.world,
        "layout": {"data": layout.data, "tensor": layout.tensor, "pipeline": layout.pipeline},
        "batch": {"global": batch.total, "micro": batch.micro, "accumulation": batch.accumulation},
        "schedule": recipe.parallel.schedule,
        "bubble": bubble,
        "processes": [process.to_dict() for process in processes],
        "rank": here.to_dict(),
    }
