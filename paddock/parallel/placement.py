"""Where tensors lie: on which device, and whether whole or as a part of what lies over several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from paddock.devices import DeviceAdapter


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


def mean_like(like: Tensor, dim: int) -> Tensor:
    """Room for a mean of `like` over one of its dimensions, counted from the last, which stays with the size 1. It
    lies as `like` does, and whole where that is cut along this dimension."""
    dim += like.dim()

    def without(shape: torch.Size) -> torch.Size:
        return torch.Size([1 if place == dim else size for place, size in enumerate(shape)])

    if not isinstance(like, DTensor):
        return like.new_empty(without(like.shape))
    placements = [Replicate() if getattr(placement, "dim", None) == dim else placement for placement in like.placements]
    here = like.to_local()
    shape = without(like.shape)
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        here.new_empty(without(here.shape)), like.device_mesh, placements, run_check=False, shape=shape, stride=stride
    )


def place_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Make every gradient lie as its parameter does: some engines leave sums that are not yet added up."""
    for parameter in parameters:
        weight, gradient = parameter.data, parameter.grad
        if isinstance(gradient, DTensor) and isinstance(weight, DTensor) and gradient.placements != weight.placements:
            parameter.grad = gradient.redistribute(placements=weight.placements)


class DeviceCopies:
    """Copies batches to the device on a stream of their own, beside what it computes. Where the host computes, there
    is nothing to copy."""

    def __init__(self, adapter: DeviceAdapter, device: torch.device) -> None:
        self._device, self._pins = device, adapter.pinned_memory
        self._host = adapter.computes_on_host
        self._stream = adapter.copy_stream(device)

    def start(self, batch: Mapping[str, Tensor]) -> Callable[[], dict[str, Tensor]]:
        """Begin to copy a batch; what is returned gives it to whatever is computed next."""
        if self._host:
            return lambda: dict(batch)
        pinned = {name: tensor.pin_memory() for name, tensor in batch.items()} if self._pins else batch
        if self._stream is None:
            return lambda: to_device(pinned, self._device)
        with self._stream:
            copies = to_device(pinned, self._device)
            done = self._stream.record_event()

        def ready() -> dict[str, Tensor]:
            current = torch.accelerator.current_stream(self._device)
            current.wait_event(done)
            for tensor in copies.values():
                tensor.record_stream(current)  # their memory is not another's until it has been used
            return copies

        return ready
