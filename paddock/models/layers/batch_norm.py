"""Batch norm that can see the samples of other processes, and that counts no batch twice.

A norm over a process's own samples makes the loss depend on how many processes share a batch. Synchronised, it takes
mean and variance over all of them: then it does not.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.layers.basic import widen
from paddock.parallel.recompute import is_recomputing


class BatchNorm(nn.BatchNorm2d):
    """torch's, without the counter of batches, which nothing reads."""

    replicas: dist.ProcessGroup | None = None
    """The processes whose samples it is taken over, if it is synchronised and there are others."""

    def __init__(self, channels: int, synchronised: bool = False) -> None:
        super().__init__(channels)
        self.synchronised = synchronised
        self.num_batches_tracked = None

    def forward(self, input: Tensor) -> Tensor:
        if self.training and self.replicas is not None:
            return self._over_replicas(input, self.replicas)
        assert self.momentum is not None
        momentum = 0.0 if is_recomputing() else self.momentum  # statistics that have seen this batch take nothing of it
        weight, bias = widen(self.weight), widen(self.bias)  # sharded weights are gathered in fewer bits
        return F.batch_norm(input, self.running_mean, self.running_var, weight, bias, self.training, momentum, self.eps)

    def _over_replicas(self, x: Tensor, replicas: dist.ProcessGroup) -> Tensor:
        """In two passes, so that nothing is lost to rounding. Every replica has as many samples as the others."""
        count = x.numel() // x.shape[1] * dist.get_world_size(replicas)
        wide = widen(x)
        mean = _total(wide.sum((0, 2, 3)), replicas) / count
        centred = wide - mean.view(1, -1, 1, 1)
        variance = _total(centred.square().sum((0, 2, 3)), replicas) / count
        if not is_recomputing():
            assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * (count / max(1, count - 1)), self.momentum)
        scale = torch.rsqrt(variance + self.eps) * widen(self.weight)
        return torch.addcmul(widen(self.bias).view(1, -1, 1, 1), centred, scale.view(1, -1, 1, 1)).to(x.dtype)


def share_statistics(model: nn.Module, replicas: dist.ProcessGroup) -> None:
    """Let the synchronised norms of a model see the samples of these processes."""
    for module in model.modules():
        if isinstance(module, BatchNorm) and module.synchronised:
            module.replicas = replicas


class _Total(torch.autograd.Function):
    """A sum over processes. Each of them goes on with it, so that its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        total = values.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def _total(values: Tensor, group: dist.ProcessGroup) -> Tensor:
    total: Tensor = _Total.apply(values, group)
    return total
