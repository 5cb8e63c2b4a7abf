"""The norm of all gradients over every process, and scaling them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from paddock.devices import adapter_of
from paddock.parallel.mesh import Mesh
from paddock.parallel.placement import local

PIECE = 2**12
"""Elements whose squares single precision can add up without loss that matters."""


def squared_norm(parameters: Sequence[nn.Parameter], mesh: Mesh, device: torch.device) -> Tensor:
    """This process's part of the squared Euclidean norm over every parameter of the whole model, each element counted
    once; it stays on the device.

    A process adds the squares of what it holds, divided by the number of processes that hold the same: then one
    sum over all processes is the square of the norm, whatever is sharded over what.
    """
    parts = [
        sum_of_squares(gradients) / copies
        for copies, gradients in _by_copies(parameters, mesh.layout.data * mesh.layout.tensor).items()
    ]
    return torch.stack(parts).sum() if parts else torch.zeros((), device=device)


def gradient_norms(
    parameters: Mapping[str, nn.Parameter], names: Sequence[str], mesh: Mesh, device: torch.device
) -> list[float]:
    """The norm of each parameter of the whole model, in the order of `names`; `parameters` are those here.

    What a process does not hold it adds nothing to, so it may know any part of the names.
    """
    squares = torch.zeros(len(names), dtype=torch.float64)
    for index, name in enumerate(names):
        if name in parameters:
            for copies, gradients in _by_copies([parameters[name]], mesh.layout.data * mesh.layout.tensor).items():
                squares[index] = sum_of_squares(gradients).cpu() / copies
    return _over_all_processes(squares, mesh, device).sqrt().tolist()


def scale_gradients(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiply every gradient by `factor`."""
    gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if factor != 1.0 and gradients:
        torch._foreach_mul_(gradients, factor)


def sum_of_squares(gradients: list[Tensor]) -> Tensor:
    """In double precision where the device has it. A CPU goes by the norms of pieces: it adds up squares one after the
    other in single precision, which is wrong in the third digit for a large embedding, and differently for each way to
    cut it."""
    adapter = adapter_of(gradients[0].device)
    if not adapter.computes_on_host:
        norms = torch.stack(torch._foreach_norm(gradients))
        return (norms.double() if adapter.float64 else norms.float()).square().sum()
    return torch.stack([_in_pieces(gradient.reshape(-1)) for gradient in gradients]).sum()


def _in_pieces(gradient: Tensor) -> Tensor:
    whole = len(gradient) // PIECE * PIECE
    norms = torch.linalg.vector_norm(gradient[:whole].view(-1, PIECE), dim=1)
    rest = torch.linalg.vector_norm(gradient[whole:])
    return norms.double().square().sum() + rest.double().square()


def _over_all_processes(squares: Tensor, mesh: Mesh, device: torch.device) -> Tensor:
    if mesh.grid is None:
        return squares
    total = squares.to(torch.float64 if adapter_of(device).float64 else torch.float32).to(device)
    dist.all_reduce(total)
    return total.cpu().double()


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
