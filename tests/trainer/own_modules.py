"""Modules and data as users have them, in a file that other processes can import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SAMPLES = 24


@dataclass
class Outputs:
    """As libraries of models have them."""

    logits: Tensor
    loss: Tensor


class Regression(nn.Module):
    """Takes its batch by name; two layers share their weight, and two buffers go along, of which one counts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.tensor([2.0]))
        self.register_buffer("passes", torch.tensor(0))

    def forward(self, x: Tensor, index: Tensor) -> dict[str, Tensor]:
        self.passes += self.training
        found = self.last(torch.tanh(self.second(torch.tanh(self.first(x * self.scale))))).squeeze(-1)
        return {"logits": found, "loss": F.mse_loss(found, index)}


class Positional(nn.Module):
    """Takes it in order, and gives its loss in the form that it is told."""

    def __init__(self, form: str = "tensor") -> None:
        super().__init__()
        self.layer, self.form = nn.Linear(6, 1), form

    def forward(self, x: Tensor, y: Tensor) -> object:
        found = self.layer(x).squeeze(-1)
        loss = F.mse_loss(found, y)
        forms = {"tensor": loss, "tuple": (loss, found), "object": Outputs(found, loss), "none": found}
        return forms[self.form]


def make_regression() -> Regression:
    return Regression()


def make_records() -> list[Mapping[str, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, 6, generator=generator)
    return [{"x": row, "index": row.sum().sin()} for row in inputs]


def make_pairs() -> list[tuple[Tensor, Tensor]]:
    return [(record["x"], record["index"]) for record in make_records()]
