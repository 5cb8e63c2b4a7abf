"""EMA: an exponential moving average of the weights, which is often better than the weights themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from paddock.checkpoint.tensors import EMA
from paddock.parallel.placement import local


class ExponentialMovingAverage:
    """Lies over processes as the weights do. Running statistics are averaged along with them."""

    def __init__(self, models: Sequence[nn.Module], decay: float, parts: Collection[nn.Module] = ()) -> None:
        """`parts` are what holds the models, where an engine has put them into something."""
        self._decay, self._parts = decay, parts or models
        parameters: list[tuple[str, Tensor]] = [pair for model in models for pair in model.named_parameters()]
        buffers = [pair for model in models for pair in model.named_buffers() if pair[1].is_floating_point()]
        self._named, self._count = parameters + buffers, len(parameters)
        self._averages = [tensor.detach().clone() for _, tensor in self._named]

    @property
    def statistics(self) -> list[Tensor]:
        """The averages of the running statistics."""
        return self._averages[self._count :]

    def named_tensors(self) -> list[tuple[str, Tensor]]:
        """The averages with their names in a checkpoint; of a weight that two stages here hold there are two."""
        return [(EMA + name, average) for (name, _), average in zip(self._named, self._averages, strict=True)]

    @torch.no_grad()
    def restart(self) -> None:
        """Begin with the weights as they are now."""
        torch._foreach_copy_(self._local_averages(), self._local_originals())

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After optimizer step `step` (the first is 1). The average of a short history forgets faster."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._local_averages(), self._local_originals(), 1.0 - decay)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The models compute with the averages while this lasts."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for original, average in zip(self._local_originals(), self._local_averages(), strict=True):
            kept = original.clone()
            original.copy_(average)
            average.copy_(kept)
        for part in self._parts:  # weights that were gathered are not these any more
            for module in part.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()

    def _local_originals(self) -> list[Tensor]:
        """Asked for anew each time: engines may move a shard to other memory."""
        return [local(tensor.data) for _, tensor in self._named]

    def _local_averages(self) -> list[Tensor]:
        return [local(average) for average in self._averages]
