"""Where few bits are not enough: sums, exponentials and losses."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 where that is what is computed in."""
    return torch.promote_types(dtype, torch.float32)


def widen(x: Tensor) -> Tensor:
    """The same numbers in the wide type; nothing is copied if they have it."""
    return x.to(wide(x.dtype))
