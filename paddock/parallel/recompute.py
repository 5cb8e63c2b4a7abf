"""Trading time for memory: blocks that keep less, and run again in the backward pass."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from paddock.parallel.config import RecomputeMode

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
"""What `selective` keeps: everything else is cheap to compute again, or large, or both."""


def apply_recompute(blocks: list[nn.Module], mode: RecomputeMode) -> None:
    """Make every block of `blocks` forget its activations, as `mode` says."""
    if mode == "none":
        return
    contexts = partial(create_selective_checkpoint_contexts, _keeps_products)
    options = {"context_fn": contexts} if mode == "selective" else {}
    for block in blocks:
        _forget(block, options)


def _keeps_products(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


def _forget(block: nn.Module, options: dict[str, Any]) -> None:
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not block.training:
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **options, **kwargs)

    block.forward = recomputed
