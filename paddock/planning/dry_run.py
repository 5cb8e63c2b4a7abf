"""Building a job's model for any number of processes on a machine that has none of their devices.

Every process is played in turn by this one: torch's fake process group answers in place of all the others, and the
model has shapes but no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from paddock.config.recipe import Recipe
from paddock.config.rules import Arithmetic, check_layout
from paddock.errors import bad_value
from paddock.models.build import build_engine
from paddock.parallel.mesh import build_mesh
from paddock.planning.footprint import Footprint, bubble_of, footprint


@dataclass(frozen=True)
class DryRun:
    """How a recipe lies over processes, and what one of them holds and does."""

    recipe: Recipe
    arithmetic: Arithmetic
    bubble: float
    """The part of a step that a process of the pipeline waits for others."""
    processes: list[Footprint]
    """One for every place in the pipeline."""
    here: Footprint
    """The process that was asked for."""

    def to_dict(self) -> dict[str, Any]:
        layout, batch = self.arithmetic.layout, self.arithmetic.batch
        return {
            "parameters": self.recipe.model.num_parameters(),
            "world": layout.world,
            "layout": {"data": layout.data, "tensor": layout.tensor, "pipeline": layout.pipeline},
            "batch": {"global": batch.total, "micro": batch.micro, "accumulation": batch.accumulation},
            "schedule": self.recipe.parallel.schedule,
            "bubble": self.bubble,
            "processes": [process.to_dict() for process in self.processes],
            "rank": self.here.to_dict(),
        }


def dry_run(recipe: Recipe, world: int, rank: int) -> DryRun:
    """Lay the recipe out over `world` processes, and look at what `rank` holds and does."""
    arithmetic = check_layout(recipe, world)
    if not 0 <= rank < world:
        raise bad_value("--rank", rank, f"{world} processes are ranks 0 to {world - 1}", f"choose one below {world}")
    processes = build_all(recipe, arithmetic, rank)
    here = next(process for process in processes if process.rank == rank)
    return DryRun(recipe, arithmetic, bubble_of(recipe, arithmetic), processes, here)


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
