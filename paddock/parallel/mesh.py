"""The processes of a layout as a grid: pipeline stages outermost, tensor shards innermost.

Neighbours in a tensor group talk the most, so they get neighbouring ranks, which share a machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from paddock.parallel.config import Layout

PIPELINE, DATA, TENSOR = "pipeline", "data", "tensor"


@dataclass(frozen=True)
class Mesh:
    """Where one process stands in a layout. With one process there is no grid, and nothing to talk over."""

    layout: Layout
    rank: int
    grid: DeviceMesh | None

    @property
    def tensor_rank(self) -> int:
        return self.rank % self.layout.tensor

    @property
    def data_rank(self) -> int:
        return self.rank // self.layout.tensor % self.layout.data

    @property
    def pipeline_rank(self) -> int:
        return self.rank // (self.layout.tensor * self.layout.data)

    def along(self, name: str) -> DeviceMesh:
        """The row of processes that differ from this one only in `name`."""
        assert self.grid is not None
        return self.grid[name]

    def group(self, name: str) -> dist.ProcessGroup:
        """The process group of that row."""
        return self.along(name).get_group()


def build_mesh(layout: Layout, rank: int, device_type: str) -> Mesh:
    """Lay the processes of the job out; called by all of them."""
    if layout.world == 1:
        return Mesh(layout, rank, None)
    shape = (layout.pipeline, layout.data, layout.tensor)
    return Mesh(layout, rank, _grid(shape, device_type, dist.group.WORLD))


_grids: list[tuple[dist.ProcessGroup, DeviceMesh]] = []
"""All meshes that were made in this process, each with the world that it was made in."""


@cache
def _grid(shape: tuple[int, int, int], device_type: str, everyone: dist.ProcessGroup) -> DeviceMesh:
    """Kept for the next time: process groups hold sockets, and tensors remember the mesh that they first met."""
    grid = init_device_mesh(device_type, shape, mesh_dim_names=(PIPELINE, DATA, TENSOR))
    _grids.append((everyone, grid))
    return grid


def group_of(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    """The group of just these processes, found among those that there are or made by its members alone: nobody else
    takes part, however many such groups a layout has."""
    world = dist.group.WORLD
    assert world is not None
    return _group_of(ranks, world)


@cache
def _group_of(ranks: tuple[int, ...], everyone: dist.ProcessGroup) -> dist.ProcessGroup:
    # torch names a group that is made so after its ranks, but where it knows a group of the same ranks also after the
    # number of groups in this process, which the members need not have alike: then they would wait for ever.
    rows = [grid[name].get_group() for world, grid in _grids if world is everyone for name in (PIPELINE, DATA, TENSOR)]
    for group in (everyone, *rows):
        if tuple(dist.get_process_group_ranks(group)) == ranks:
            return group
    made = dist.new_group(list(ranks), use_local_synchronization=True)
    assert isinstance(made, dist.ProcessGroup)
    return made
