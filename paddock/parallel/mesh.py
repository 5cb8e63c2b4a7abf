"""The processes of a layout as a grid: pipeline stages outermost, tensor shards innermost.

Neighbours in a tensor group talk the most, so they get neighbouring ranks, which share a machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from paddock.parallel.config import Layout

PIPELINE, DATA, TENSOR = "pipeline", "data", "tensor"


@dataclass(frozen=True)
class Mesh:
    """Where one process stands in a layout. With one process there is no grid, and nothing to talk over."""

    layout: Layout
    rank: int
    """Its place in the grid, counted along tensor, then data, then pipeline: its rank in the job, unless stages are
    reversed."""
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

    def neighbour(self, stages: int) -> int:
        """The rank in the job of the process so many stages further, at this one's place in the other dimensions."""
        assert self.grid is not None
        return int(self.grid.mesh[self.pipeline_rank + stages, self.data_rank, self.tensor_rank])

    def along(self, name: str) -> DeviceMesh:
        """The row of processes that differ from this one only in `name`."""
        assert self.grid is not None
        return self.grid[name]

    def group(self, name: str) -> dist.ProcessGroup:
        """The process group of that row."""
        return self.along(name).get_group()


def build_mesh(layout: Layout, rank: int, device_type: str, *, reversed_stages: bool = False) -> Mesh:
    """Lay the processes of the job out; called by all of them. With `reversed_stages` rank 0 is at the end of the
    pipeline."""
    if layout.world == 1:
        return Mesh(layout, rank, None)
    shape = (layout.pipeline, layout.data, layout.tensor)
    if reversed_stages:
        before, within = divmod(rank, layout.data * layout.tensor)
        rank = (layout.pipeline - 1 - before) * layout.data * layout.tensor + within
    return Mesh(layout, rank, _grid(shape, device_type, reversed_stages and layout.pipeline > 1, dist.group.WORLD))


@cache
def _grid(shape: tuple[int, int, int], device_type: str, reverse: bool, everyone: dist.ProcessGroup) -> DeviceMesh:
    """Kept for the next time: process groups hold sockets, and tensors remember the mesh that they first met."""
    names = (PIPELINE, DATA, TENSOR)
    if not reverse:
        return init_device_mesh(device_type, shape, mesh_dim_names=names)
    return DeviceMesh(device_type, torch.arange(math.prod(shape)).view(shape).flip(0), mesh_dim_names=names)


def group_of_stages(processes: tuple[int, ...], mesh: Mesh) -> dist.ProcessGroup | None:
    """The group of some of the pipeline's processes, at this one's place in the other dimensions; None if it is not
    among them. Called by all processes of the job, in one order."""
    if len(processes) == mesh.layout.pipeline:
        return mesh.group(PIPELINE)
    return _column(processes, mesh.layout.data * mesh.layout.tensor, mesh.rank, dist.group.WORLD)


@cache
def _column(processes: tuple[int, ...], width: int, rank: int, everyone: object) -> dist.ProcessGroup | None:
    # Its members make it alone, so that a job of many columns does not wait for each of them. torch names such a group
    # after its ranks and the number of groups that a process is in: so everybody makes one every time, those outside
    # one of themselves, or members of several (T5's first stage shares the embedding with one, the position bias with
    # others) would know a group by other names, and wait for each other for ever.
    ranks = [process * width + rank % width for process in processes]
    made = dist.new_group(ranks if rank in ranks else [rank], use_local_synchronization=True)
    assert isinstance(made, dist.ProcessGroup)
    return made if rank in ranks else None
