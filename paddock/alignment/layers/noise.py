"""What a device differs from itself by: sums whose order is left to chance, as of many additions to one place at once.

It computes the same once more. Where the bits are others, and do not explain what is found, it computes a few times
more: one difference of two draws may be small by chance. What it differs from the reference by may then be larger too,
within bounds: numbers that are another one every time are no noise, they are wrong.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from paddock.alignment.layers.closeness import SAME, Distance, distance, farthest

REPEATS = 3
"""How often a device that differs from itself computes the same again."""
NOISE_ROOM = 4
"""How much farther than from itself a device may be from the reference."""
MOST_NOISE = 1e-2
"""What noise excuses at most of a tensor as a whole, where it makes one rounding of a rounding; more where it makes
more of it. A single number of a tensor may be any other, as where a sum is above zero now and below it then."""

Tensors = Mapping[str, Tensor]


def measure_noise(
    compute: Callable[[], Tensors],
    first: Tensors,
    scale: Tensors,
    *,
    repeats: int = REPEATS,
    known: Mapping[str, Distance] | None = None,
) -> dict[str, Distance]:
    """How far a device is from what it computed `first`, relative to the size of the reference's tensors; `known` is
    what one repeat found, which counts as one."""
    found = dict.fromkeys(first, SAME) | dict(known or {})
    if known is not None:
        repeats = 0 if all(one.is_zero for one in known.values()) else repeats - 1
    for _ in range(repeats):
        again = compute()
        differing = [name for name in first if name in scale and not _identical(again[name], first[name])]
        if not differing:
            break
        for name in differing:
            there, here = again[name].to("cpu"), first[name].to("cpu")
            found[name] = farthest([found[name], distance(there, here, scale[name].to("cpu"))])
    return found


def typical(noise: Mapping[str, Distance]) -> Distance:
    """The middle of a part's tensors: what a tensor of a few numbers, which is steady by chance, is as likely to do."""
    return Distance(
        statistics.median(one.whole for one in noise.values()), statistics.median(one.worst for one in noise.values())
    )


def allow_noise(allowed: Distance, noise: Distance, moved: Distance, number_type: torch.dtype) -> Distance:
    """A tolerance that has room for a device's noise; `moved` is what the tensor makes of a rounding."""
    eps = torch.finfo(number_type).eps
    most = MOST_NOISE * max(1.0, moved.whole / eps)
    return Distance(
        max(allowed.whole, min(NOISE_ROOM * noise.whole, most)), max(allowed.worst, min(NOISE_ROOM * noise.worst, 1.0))
    )


def _identical(one: Tensor, other: Tensor) -> bool:
    """Bit for bit; what is no number is the same as what is no number."""
    if one.device == other.device and torch.equal(one, other):
        return True
    there, here = one.to("cpu"), other.to("cpu")
    return there.shape == here.shape and torch.allclose(there, here, rtol=0.0, atol=0.0, equal_nan=True)
