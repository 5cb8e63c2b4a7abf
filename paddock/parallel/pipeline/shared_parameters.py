"""Parameters that several pipeline stages hold: copies that must stay one.

An embedding that is also the head, a position bias that every layer of a stack uses: whatever it is, all copies begin
equal (weights are drawn by name) and get the sum of all their gradients, so every optimizer keeps them equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paddock.parallel.mesh import Mesh, group_of_stages
from paddock.parallel.placement import local


class SharedParameters:
    """This process's copies of parameters that several stages hold."""

    def __init__(
        self,
        holders: Mapping[str, Sequence[int]],
        process_of: Mapping[int, int],
        here: Mapping[int, nn.Module],
        mesh: Mesh,
    ) -> None:
        """`holders` has the stages of every parameter by its name, `process_of` the pipeline process of every stage,
        `here` the models of the stages on this process. All processes know the same of the first two."""
        self.counted_elsewhere: list[nn.Parameter] = []
        """Copies that are not the first: a norm over the whole model counts each parameter once."""
        self._copies: list[tuple[list[nn.Parameter], dist.ProcessGroup | None]] = []
        for name, stages in sorted(holders.items()):  # in one order everywhere: groups are made together, and overlap
            if len(stages) < 2:
                continue
            processes = tuple(sorted({process_of[stage] for stage in stages}))
            group = group_of_stages(processes, mesh) if len(processes) > 1 else None
            copies = {stage: here[stage].get_parameter(name) for stage in stages if stage in here}
            self.counted_elsewhere += [copy for stage, copy in copies.items() if stage != stages[0]]
            if copies and next(iter(copies.values())).requires_grad:
                self._copies.append((list(copies.values()), group))

    def sum_gradients(self) -> None:
        """Give every copy the sum of the gradients of all."""
        for copies, group in self._copies:
            total, *others = (local(_gradient(copy)) for copy in copies)
            for gradient in others:
                total += gradient
            if group is not None:
                dist.all_reduce(total, group=group)
            for gradient in others:
                gradient.copy_(total)

    def traffic(self) -> int:
        """Bytes that this process sends in a step for it: of n bytes over k processes a sum sends 2n × (k − 1) / k."""
        sent = 0
        for copies, group in self._copies:
            if group is not None:
                size = local(copies[0].data).numel() * torch.float32.itemsize
                members = dist.get_world_size(group)
                sent += 2 * size * (members - 1) // members
        return sent


def _gradient(copy: nn.Parameter) -> Tensor:
    """A copy that was there and not used adds nothing, but takes part."""
    if copy.grad is None:
        copy.grad = torch.zeros_like(copy)
    return copy.grad
