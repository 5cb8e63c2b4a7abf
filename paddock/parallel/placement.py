"""Where tensors lie: on which device, and whether whole or as a part of what lies over several processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def to_device(batch: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """The batch on the device that computes."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that is here."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def part_like(whole: Tensor, like: Tensor) -> Tensor:
    """The part of `whole` that belongs where `like` lies. Every process has the whole, so nothing is sent."""
    if not isinstance(like, DTensor):
        return whole
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None).to_local()


def place_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Make every gradient lie as its parameter does: some engines leave sums that are not yet added up."""
    for parameter in parameters:
        weight, gradient = parameter.data, parameter.grad
        if isinstance(gradient, DTensor) and isinstance(weight, DTensor) and gradient.placements != weight.placements:
            parameter.grad = gradient.redistribute(placements=weight.placements)
