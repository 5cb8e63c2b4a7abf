"""Running statistics that every data replica gathers from its own samples: made one, before anybody reads them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paddock.parallel.mesh import DATA, Mesh


def statistics_of(models: Sequence[nn.Module]) -> list[Tensor]:
    """What a model measures of its samples instead of learning it, such as a batch norm's running mean."""
    return [buffer for model in models for buffer in model.buffers() if buffer.is_floating_point()]


def average_statistics(tensors: Sequence[Tensor], mesh: Mesh) -> None:
    """Put the mean over the data replicas in place of each one's own.

    They are moving averages: taking the mean now and going on gives what taking it at the end would give.
    """
    if mesh.layout.data == 1 or not tensors:
        return
    together = torch.cat([tensor.flatten().float() for tensor in tensors])
    dist.all_reduce(together, group=mesh.group(DATA))
    together /= mesh.layout.data
    for tensor, part in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view(tensor.shape))
