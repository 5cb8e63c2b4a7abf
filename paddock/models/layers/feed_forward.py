"""The feed-forward layer of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.layers.basic import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
}
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(torch.ops.aten.gelu_, approximate="tanh"),
    "gelu": torch.ops.aten.gelu_,
    "relu": F.relu_,
}


class FeedForward(nn.Module):
    """Widen, bend, narrow."""

    def __init__(self, hidden: int, width: int, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.input = Linear(hidden, width)
        self.output = Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        # What is largest in a transformer is held once where no gradient will ask for it.
        bend = (ACTIVATIONS if torch.is_grad_enabled() else IN_PLACE)[self.activation]
        return self.output(bend(self.input(x)))
