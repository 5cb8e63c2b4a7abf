"""torch's layers without their own random beginnings (a model's weights are drawn by name, once it is built), and where
few bits are not enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.devices import Packed, adapter_of


def wide(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 where that is what is computed in."""
    return torch.promote_types(dtype, torch.float32)


def widen(x: Tensor) -> Tensor:
    """The same numbers in the wide type; nothing is copied if they have it."""
    return x.to(wide(x.dtype))


def widest(x: Tensor) -> Tensor:
    """The same numbers in float64 where their device has it, else in float32: for sums over many samples."""
    return x.to(torch.float64 if adapter_of(x.device).float64 else torch.float32)


class Linear(nn.Linear):
    """A linear layer whose weights are not drawn here."""

    packed: Packed | None = None
    """Its weight once more, while a model writes (`packed_weights`)."""

    def reset_parameters(self) -> None:
        """Leave them to `initialize`."""

    def forward(self, input: Tensor) -> Tensor:
        if self.packed is not None:
            return self.packed.multiply(input, self.bias)
        return super().forward(input)


class Embedding(nn.Embedding):
    """An embedding whose weights are not drawn here."""

    def reset_parameters(self) -> None:
        """Leave them to `initialize`."""


class LayerNorm(nn.LayerNorm):
    """A layer norm that takes its own parameters in fewer bits than its input: sharded weights are gathered so. Where
    all is in few bits it stays so: not every device takes two types at once."""

    def forward(self, input: Tensor) -> Tensor:
        same = input.dtype == self.weight.dtype
        weight, bias = (self.weight, self.bias) if same else (widen(self.weight), widen(self.bias))
        return F.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
}


class FeedForward(nn.Module):
    """Widen, bend, narrow."""

    def __init__(self, hidden: int, width: int, activation: str) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.input = Linear(hidden, width)
        self.output = Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activation(self.input(x)))
