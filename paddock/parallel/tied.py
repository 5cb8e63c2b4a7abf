"""A weight that the first and the last pipeline stage both hold: two copies that must stay one.

Both begin equal and get the sum of both gradients, so every optimizer keeps them equal.
"""

from __future__ import annotations

from functools import cache

import torch.distributed as dist
from torch import nn

from paddock.parallel.layout import Layout
from paddock.parallel.mesh import Mesh
from paddock.parallel.placement import local


class TiedWeight:
    """The copies that this process holds (none, one or, where the pipeline is folded, both)."""

    def __init__(self, first: nn.Parameter | None, last: nn.Parameter | None, mesh: Mesh, folded: bool) -> None:
        self._copies = [copy for copy in (first, last) if copy is not None]
        self.counted_elsewhere = [] if last is None else [last]
        self._group = None if folded else _group_of_ends(mesh.layout, mesh.rank, dist.group.WORLD)

    def add_up(self) -> None:
        """Give every copy the sum of the gradients of both."""
        if len(self._copies) == 2:
            here, there = (local(copy.grad) for copy in self._copies if copy.grad is not None)
            here += there
            there.copy_(here)
        elif self._copies and self._group is not None:
            gradient = self._copies[0].grad
            assert gradient is not None
            dist.all_reduce(local(gradient), group=self._group)


@cache
def _group_of_ends(layout: Layout, rank: int, everyone: dist.ProcessGroup) -> dist.ProcessGroup | None:
    """The group of this process's own first and last stage. Every process takes part in making every group; they are
    kept, as a mesh's are."""
    width = layout.data * layout.tensor
    mine = None
    for column in range(width):
        ranks = [column, (layout.pipeline - 1) * width + column]
        group = dist.new_group(ranks)
        if rank in ranks:
            mine = group
    return mine
