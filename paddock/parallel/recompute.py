"""Trading time for memory: blocks that keep less, and run again in the backward pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
    for block in blocks:
        counts = next(block.buffers(), None) is not None
        if mode == "selective":
            _forget(block, {"context_fn": partial(_keep_products, counts)})
        else:
            _forget(block, {"context_fn": _keep_nothing} if counts else {})


def is_recomputing() -> bool:
    """Whether a block with statistics is being run again: they must not count a batch twice."""
    return getattr(_here, "again", False)


_here = threading.local()  # a device's backward pass has a thread of its own


@contextmanager
def _again(inner: AbstractContextManager[Any]) -> Iterator[None]:
    with inner:
        before, _here.again = is_recomputing(), True
        try:
            yield
        finally:
            _here.again = before


def _keep_nothing() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return nullcontext(), _again(nullcontext())


def _keep_products(counts: bool) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    first, again = create_selective_checkpoint_contexts(_keeps_products)
    return first, _again(again) if counts else again


def _keeps_products(ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


def _forget(block: nn.Module, options: dict[str, Any]) -> None:
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not block.training:
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **options, **kwargs)

    block.forward = recomputed
