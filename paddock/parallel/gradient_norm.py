"""The norm of all gradients over every process, and scaling them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from paddock.parallel.mesh import Mesh
from paddock.parallel.placement import local


def gradient_norm(parameters: Sequence[nn.Parameter], mesh: Mesh) -> float:
    """The Euclidean norm over every parameter of the whole model, each element counted once.

    A process adds the squares of what it holds, divided by the number of processes that hold the same: then one
    sum over all processes is the square of the norm, whatever is sharded over what.
    """
    squares = torch.zeros((), dtype=torch.float64)
    for copies, gradients in _by_copies(parameters, mesh.layout.data * mesh.layout.tensor).items():
        norms = torch.stack(torch._foreach_norm(gradients)).double().cpu()
        squares += norms.square().sum() / copies
    if mesh.grid is not None:
        total = squares.to(gradients_device(parameters), torch.float32 if _lacks_double(parameters) else torch.float64)
        dist.all_reduce(total)
        squares = total.double().cpu()
    return float(squares.sqrt())


def scale_gradients(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiply every gradient by `factor`."""
    gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if factor != 1.0 and gradients:
        torch._foreach_mul_(gradients, factor)


def gradients_device(parameters: Sequence[nn.Parameter]) -> torch.device:
    return parameters[0].device if parameters else torch.device("cpu")


def _lacks_double(parameters: Sequence[nn.Parameter]) -> bool:
    return gradients_device(parameters).type != "cpu"


def _by_copies(parameters: Sequence[nn.Parameter], processes: int) -> dict[int, list[Tensor]]:
    """The local gradients, by how many of the `processes` of a stage hold the same."""
    found: dict[int, list[Tensor]] = {}
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        shards = 1
        if isinstance(gradient, DTensor):
            for size, placement in zip(gradient.device_mesh.shape, gradient.placements, strict=True):
                shards *= 1 if isinstance(placement, Replicate) else size
        found.setdefault(processes // shards, []).append(local(gradient))
    return found
