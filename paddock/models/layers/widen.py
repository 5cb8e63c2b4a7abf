"""Where few bits are not enough: sums, exponentials and losses."""

from __future__ import annotations

import torch
from torch import Tensor

from paddock.devices import adapter_of


def wide(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 where that is what is computed in."""
    return torch.promote_types(dtype, torch.float32)


def widen(x: Tensor) -> Tensor:
    """The same numbers in the wide type; nothing is copied if they have it."""
    return x.to(wide(x.dtype))


def widest(x: Tensor) -> Tensor:
    """The same numbers in float64 where their device has it, else in float32: for sums over many samples."""
    return x.to(torch.float64 if adapter_of(x.device).float64 else torch.float32)
