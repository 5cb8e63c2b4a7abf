"""Trading time for memory: blocks that keep only their input and run again in the backward pass."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn
from torch.utils.checkpoint import checkpoint


def apply_recompute(blocks: list[nn.Module], mode: Literal["none", "full"]) -> None:
    """Make every block of `blocks` forget its activations, as `mode` says."""
    if mode == "none":
        return
    for block in blocks:
        _forget(block)


def _forget(block: nn.Module) -> None:
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not block.training:
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    block.forward = recomputed
