"""Keys and values of the tokens a model has already seen, so that generation computes each token once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class _Slot:
    """What one attention layer has stored."""

    memory: Tensor
    """[2, batch, heads, capacity, head size]"""
    length: int = 0


class KeyValueCache:
    """Room for `capacity` positions in every attention layer that is here: a pipeline stage, or a process that holds
    some of the heads, caches what it has."""

    def __init__(self, model: nn.Module, batch: int, capacity: int) -> None:
        self.capacity = capacity
        self._slots: dict[nn.Module, _Slot] = {}
        for layer in model.modules():
            if getattr(layer, "caches", False):
                heads, size, like = layer.cached_shape()  # type: ignore[operator]
                shape = (2, batch, heads, capacity, size)
                self._slots[layer] = _Slot(torch.empty(shape, dtype=like.dtype, device=like.device))

    @property
    def length(self) -> int:
        """Positions stored so far, by the layer that stores first."""
        return next(iter(self._slots.values())).length

    @property
    def num_bytes(self) -> int:
        return sum(slot.memory.nbytes for slot in self._slots.values())

    def extend(self, layer: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values ([batch, heads, time, head size]) and return all so far."""
        slot = self._slots[layer]
        stop = slot.length + keys.shape[2]
        slot.memory[0, :, :, slot.length : stop] = keys
        slot.memory[1, :, :, slot.length : stop] = values
        slot.length = stop
        return slot.memory[0, :, :, :stop], slot.memory[1, :, :, :stop]

    def reorder(self, rows: Tensor) -> None:
        """Continue from a choice of the batch's rows (one may be taken several times)."""
        for slot in self._slots.values():
            slot.memory = slot.memory[:, rows]
