"""How far one tensor is from another, and how far it may be: a tolerance found on the tensors themselves.

Rounding is not a constant. What a layer makes of it depends on the layer and on its inputs, so the reference computes
once more from inputs that were moved by the device's rounding, and what comes of that is what a device may differ by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDINGS = 8
"""Roundings of the number type that need no explanation: below, nothing is computed a second time."""
PIECE = 1 << 15
"""Numbers of a tensor that are summed in float64 at once, so that they stay in the cache."""
ROOM = 16
"""How much farther than the moved reference a device may be: its own sums run in another order, in every operation."""


@dataclass(frozen=True)
class Distance:
    """Between a device's tensor and the reference's."""

    whole: float
    """The norm of the difference, relative to the norm of the reference."""
    worst: float
    """The largest difference of an element, relative to the largest element."""

    def within(self, other: Distance) -> bool:
        return self.whole <= other.whole and self.worst <= other.worst

    @property
    def is_zero(self) -> bool:
        return self.whole == self.worst == 0.0


SAME = Distance(0.0, 0.0)
FAR = Distance(math.inf, math.inf)


def distance(found: Tensor, reference: Tensor, scale: Tensor | None = None) -> Distance:
    """How far `found`, on any device, is from the reference, relative to the size of that or of `scale`. What is not
    finite in one alone is infinitely far."""
    there, here = found.detach().to(reference.device), reference.detach()
    if there.shape != here.shape:
        return FAR
    if torch.equal(there, here):
        return SAME
    if not here.is_floating_point():
        return FAR
    there, here = there.to(here.dtype), here
    difference = there - here
    size = norm(difference)
    if not math.isfinite(size):
        return FAR
    whole = here if scale is None else scale.detach()
    usual = norm(whole)
    if usual == 0.0:
        return FAR
    return Distance(size / usual, _largest(difference) / _largest(whole))


def norm(values: Tensor) -> float:
    """The root of the sum of squares, in float64: what is tiny in float32 has squares there are none of."""
    total = 0.0
    for piece in values.reshape(-1).split(PIECE):
        wide = piece.to(torch.float64)
        total += float(wide.dot(wide))
    return math.sqrt(total)


def _largest(values: Tensor) -> float:
    low, high = values.aminmax()
    return max(-float(low), float(high))


def unremarkable(number_type: torch.dtype) -> Distance:
    """What two devices may always differ by."""
    bound = ROUNDINGS * torch.finfo(number_type).eps
    return Distance(bound, bound)


def tolerance(moved: Distance, number_type: torch.dtype) -> Distance:
    """What a device may differ by where the moved reference differs by so much."""
    least = unremarkable(number_type)
    return Distance(max(ROOM * moved.whole, least.whole), max(ROOM * moved.worst, least.worst))


def move(tensors: Mapping[str, Tensor], number_type: torch.dtype, seed: int) -> dict[str, Tensor]:
    """The tensors, every number of them moved by about a rounding of the type; whole numbers stay."""
    generator = torch.Generator().manual_seed(seed)
    return {name: _moved(tensor, torch.finfo(number_type).eps, generator) for name, tensor in tensors.items()}


def _moved(tensor: Tensor, size: float, generator: torch.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    noise = torch.empty(tensor.shape, dtype=tensor.dtype).uniform_(-size, size, generator=generator)
    return noise.to(tensor.device).add_(1).mul_(tensor.detach())


def farthest(found: Iterable[Distance]) -> Distance:
    """The largest of each measure."""
    everything = list(found)
    return Distance(max(one.whole for one in everything), max(one.worst for one in everything)) if everything else SAME
