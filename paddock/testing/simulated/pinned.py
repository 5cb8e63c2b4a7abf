"""Page-locked memory of the host, which torch can ask only a plug-in in C++ for: here it is any memory, and marked."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor


def let_host_memory_be_pinned() -> torch.library.Library:
    """`tensor.pin_memory()` works for as long as what is returned lives."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*[Oo]verriding a previously registered kernel")
        library.impl("_pin_memory", _pin, "CPU")
        library.impl("is_pinned", _is_pinned, "CPU")
    return library


def _pin(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    copy = tensor.clone()
    copy.untyped_storage().pinned = True  # type: ignore[attr-defined]
    return copy


def _is_pinned(tensor: Tensor, device: torch.device | None = None) -> bool:
    return getattr(tensor.untyped_storage(), "pinned", False)
