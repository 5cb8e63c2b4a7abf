"""The feed-forward layer of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.layers.basic import Linear

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
