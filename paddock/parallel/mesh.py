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


@cache
def _grid(shape: tuple[int, int, int], device_type: str, everyone: dist.ProcessGroup) -> DeviceMesh:
    """Kept for the next time: process groups hold sockets, and tensors remember the mesh that they first met."""
    return init_device_mesh(device_type, shape, mesh_dim_names=(PIPELINE, DATA, TENSOR))


def group_of_stages(processes: tuple[int, ...], mesh: Mesh) -> dist.ProcessGroup | None:
    """The group of some of the pipeline's processes, at this one's place in the other dimensions; None if it is not
    among them. Called by all processes of the job, in one order."""
    if len(processes) == mesh.layout.pipeline:
        return mesh.group(PIPELINE)
    return _columns(processes, mesh.layout.data * mesh.layout.tensor, dist.group.WORLD)


@cache
def _columns(processes: tuple[int, ...], width: int, everyone: dist.ProcessGroup) -> dist.ProcessGroup | None:
    # Everybody makes all of them. A group that its members make alone is named by torch after the number of groups
    # that a process is in; members of several (T5's first stage shares the embedding with one and the position bias
    # with others) have other numbers, and would wait for each other for ever.
    ranks = [[process * width + place for process in processes] for place in range(width)]
    own: dist.ProcessGroup | None = dist.new_subgroups_by_enumeration(ranks)[0]
    return own
