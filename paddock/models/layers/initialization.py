"""Initial weights that depend on the seed and the parameter's name only, whatever the device or layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from paddock.parallel.placement import local, part_like
from paddock.parallel.seeds import seed_for


@dataclass(frozen=True)
class Initial:
    """How a parameter begins: normal with a standard deviation, or a constant where `std` is zero."""

    std: float = 0.0
    constant: float = 0.0
    rows: tuple[tuple[int, float], ...] = ()
    """Where not all rows are alike: so many with a standard deviation of so many times `std`, and so on, over and over
    (a fused projection, whose queries begin smaller)."""


@runtime_checkable
class Initializable(Protocol):
    """A model that says how each of its parameters begins, and each of its buffers, with a constant; None is what has
    its values already."""

    def initial(self, name: str) -> Initial | None: ...


def initialize(model: nn.Module, seed: int) -> None:
    """Fill every parameter and buffer. Drawn on the CPU, so that every device begins with the same numbers."""
    assert isinstance(model, Initializable)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            rule = model.initial(name)
            if rule is None:
                continue
            if rule.std == 0.0:
                local(parameter.data).fill_(rule.constant)
                continue
            generator = torch.Generator().manual_seed(seed_for(seed, name))
            values = torch.empty(parameter.shape, dtype=torch.float32)
            values.normal_(0.0, rule.std, generator=generator)
            if rule.rows:
                pattern = torch.cat([torch.full((count,), factor) for count, factor in rule.rows])
                values.mul_(pattern.repeat(len(values) // len(pattern)).unsqueeze(-1))
            local(parameter.data).copy_(part_like(values, parameter.data))
        for name, buffer in model.named_buffers():
            rule = model.initial(name)
            if rule is not None:
                assert rule.std == 0.0
                buffer.fill_(rule.constant)
