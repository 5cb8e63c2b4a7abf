"""Keys and values of the tokens a model has already seen, so that generation computes each token once."""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """Room for `capacity` positions in every layer of a decoder."""

    def __init__(self, layers: int, batch: int, heads: int, capacity: int, head_size: int, like: Tensor) -> None:
        shape = (layers, 2, batch, heads, capacity, head_size)
        self._memory = torch.empty(shape, dtype=like.dtype, device=like.device)
        self.capacity = capacity
        self.length = 0

    @property
    def num_bytes(self) -> int:
        return self._memory.nbytes

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store this layer's new keys and values ([batch, heads, time, head]) and return all so far."""
        stop = self.length + keys.shape[2]
        memory = self._memory[layer]
        memory[0, :, :, self.length : stop] = keys
        memory[1, :, :, self.length : stop] = values
        return memory[0, :, :, :stop], memory[1, :, :, :stop]

    def advance(self, tokens: int) -> None:
        """All layers have stored `tokens` more positions."""
        self.length += tokens

    def reorder(self, rows: Tensor) -> None:
        """Continue from a choice of the batch's rows (one may be taken several times)."""
        self._memory = self._memory[:, :, rows]
