"""Activation checkpointing: units that keep less, and run again in the backward pass. Time is traded for memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from paddock.parallel.config import RecomputeMode

PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
"""What `selective` keeps: everything else is cheap to compute again, or large, or both."""


def recomputed(mode: RecomputeMode, run: Callable[..., Any], unit: nn.Module) -> Callable[..., Any]:
    """`run`, which runs `unit`, but in training forgetting its activations as `mode` says."""
    if mode == "none":
        return run
    counts = next(unit.buffers(), None) is not None
    contexts: dict[str, Any] = {}
    if mode == "selective":
        contexts = {"context_fn": partial(_keep_products, counts)}
    elif counts:
        contexts = {"context_fn": _keep_nothing}

    def run_or_recompute(*args: Any) -> Any:
        return checkpoint(run, *args, use_reentrant=False, **contexts) if unit.training else run(*args)

    return run_or_recompute


def is_recomputing() -> bool:
    """Whether a unit with statistics is being run again: they must not count a batch twice."""
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
