"""A weight that the first and the last pipeline stage both hold: two copies that must stay one.

Both begin equal and get the sum of both gradients, so every optimizer keeps them equal.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from paddock.parallel.mesh import Mesh
from paddock.parallel.placement import local


class TiedWeight:
    """The copies that this process holds (none, one or, where the pipeline is folded, both)."""

    def __init__(self, first: nn.Parameter | None, last: nn.Parameter | None, mesh: Mesh, folded: bool) -> None:
        self._copies = [copy for copy in (first, last) if copy is not None]
        self.counted_elsewhere = [] if last is None else [last]
        self.group = None if folded else _group_of_ends(mesh)

    def add_up(self) -> None:
        """Give every copy the sum of the gradients of both."""
        if len(self._copies) == 2:
            here, there = (local(copy.grad) for copy in self._copies if copy.grad is not None)
            here += there
            there.copy_(here)
        elif self._copies and self.group is not None:
            gradient = self._copies[0].grad
            assert gradient is not None
            dist.all_reduce(local(gradient), group=self.group)


def _group_of_ends(mesh: Mesh) -> dist.ProcessGroup | None:
    """The group of this process's own first and last stage. Every process takes part in making every group."""
    width = mesh.layout.data * mesh.layout.tensor
    mine = None
    for column in range(width):
        ranks = [column, (mesh.layout.pipeline - 1) * width + column]
        group = dist.new_group(ranks)
        if mesh.rank in ranks:
            mine = group
    return mine
