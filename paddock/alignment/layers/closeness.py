"""How far one tensor is from another, and how far it may be: a tolerance found on the tensors themselves.

Rounding is not a constant. What a layer makes of it depends on the layer and on its inputs, so the reference computes
once more from inputs that were moved by the device's rounding, and what comes of that is what a device may differ by.

Where numbers have fewer bits than float32's there is no room to waste: sixteen roundings of bfloat16 are an eighth. The
moved reference then rounds as the device does, in every operator, and a tensor as a whole may be no farther than that:
the norm of a difference averages over all numbers. What is farther is not wrong yet; its operators decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDINGS = 8
"""Roundings of the number type that need no explanation: below, nothing is computed a second time."""
FEW_BITS_ROUNDINGS = 0.5
"""The same for the whole of a tensor where the type has few bits."""
PIECE = 1 << 15
"""Numbers of a tensor that are summed in float64 at once, so that they stay in the cache."""
WIDE_ROUNDINGS, WIDE_DRAWS = 4, 3
"""By how many roundings the reference is moved, and how often, where rounding alone does not explain a part of which no
operator is wrong."""
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
        """What is infinitely far is within nothing."""
        return self.whole <= other.whole and self.worst <= other.worst and math.isfinite(self.whole + self.worst)

    @property
    def is_zero(self) -> bool:
        return self.whole == self.worst == 0.0


SAME = Distance(0.0, 0.0)
FAR = Distance(math.inf, math.inf)
OPERATOR_ROOM = 4
"""How much farther from the reference an operator in few bits may be than that is from float64: both compute in more
bits inside, and round once."""
OPERATOR_ROUNDINGS = Distance(1.0, 2.0)
"""Roundings that such an operator always may be away."""


def distance(found: Tensor, reference: Tensor, scale: Tensor | None = None) -> Distance:
    """How far `found`, on any device, is from the reference, relative to the size of that or of `scale`. What is not
    finite in one alone is infinitely far; what is infinite in both, as masked scores are, is not looked at."""
    there, here = found.detach().to(reference.device), reference.detach()
    if there.shape != here.shape:
        return FAR
    if torch.equal(there, here):
        return SAME
    if not here.is_floating_point():
        return FAR
    there, whole = there.to(here.dtype), here if scale is None else scale.detach()
    difference = there - here
    size = norm(difference)
    if not math.isfinite(size):
        masked = here.isinf() & (there == here)
        difference, whole = difference.masked_fill(masked, 0.0), whole.masked_fill(whole.isinf(), 0.0)
        size = norm(difference)
    if not math.isfinite(size):
        return FAR
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


def has_few_bits(number_type: torch.dtype) -> bool:
    """Whether numbers of the type have fewer bits than float32's."""
    return torch.finfo(number_type).bits < 32


def unremarkable(number_type: torch.dtype) -> Distance:
    """What two devices may always differ by."""
    eps = torch.finfo(number_type).eps
    return Distance((FEW_BITS_ROUNDINGS if has_few_bits(number_type) else ROUNDINGS) * eps, ROUNDINGS * eps)


def tolerance(moved: Distance, number_type: torch.dtype) -> Distance:
    """What a device may differ by where the moved reference differs by so much."""
    room = 1 if has_few_bits(number_type) else ROOM
    return farthest([Distance(room * moved.whole, ROOM * moved.worst), unremarkable(number_type)])


def wide_tolerance(moved: Iterable[Distance], number_type: torch.dtype) -> Distance:
    """The same in few bits where no operator decides, for a reference that was moved by `WIDE_ROUNDINGS`, more than
    once. What is above zero on one device and below it on the other differs by much, and seldom."""
    far, least = farthest(moved), ROUNDINGS * torch.finfo(number_type).eps
    room = ROOM / WIDE_ROUNDINGS
    return farthest([Distance(room * far.whole, room * far.worst), Distance(least, least)])


def operator_tolerance(own: Distance, result_type: torch.dtype) -> Distance:
    """What a single operator may differ by where the reference is so far from float64."""
    if not has_few_bits(result_type):
        return tolerance(own, torch.float32)
    eps, least = torch.finfo(result_type).eps, OPERATOR_ROUNDINGS
    return farthest(
        [Distance(OPERATOR_ROOM * own.whole, OPERATOR_ROOM * own.worst), Distance(least.whole * eps, least.worst * eps)]
    )


def move(tensors: Mapping[str, Tensor], number_type: torch.dtype, seed: int, roundings: float = 1) -> dict[str, Tensor]:
    """The tensors, every number of them moved by about a rounding of the type, or several; whole numbers stay."""
    generator, size = torch.Generator().manual_seed(seed), roundings * torch.finfo(number_type).eps
    return {name: _moved(tensor, size, generator) for name, tensor in tensors.items()}


def _moved(tensor: Tensor, size: float, generator: torch.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    noise = torch.empty(tensor.shape, dtype=tensor.dtype).uniform_(-size, size, generator=generator)
    return noise.to(tensor.device).add_(1).mul_(tensor.detach())


def farthest(found: Iterable[Distance]) -> Distance:
    """The largest of each measure."""
    everything = list(found)
    return Distance(max(one.whole for one in everything), max(one.worst for one in everything)) if everything else SAME
