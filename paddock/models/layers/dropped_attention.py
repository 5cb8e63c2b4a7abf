"""Causal attention with dropout on its weights, for CPUs: no fused kernel there has it.

Queries go in blocks of rows, each against the keys up to its own end, so that half of what a mask would throw away
is never computed and a block's weights stay in the cache between one pass and the next. The heads of one sample are
one batched product. The weights are kept for the backward pass, which walks the blocks in the opposite order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from paddock.models.layers.dropout import random_mask, scale_of_kept

ROWS = 128
"""Queries in a block."""


def dropped_causal_attention(
    query: Tensor, key: Tensor, value: Tensor, seed: Tensor, rate: float, segments: Tensor | None = None
) -> Tensor:
    """All but `seed` are [batch, heads, time, head size]; computed in float32 whatever their type."""
    mixed: Tensor = _attend(query.float(), key.float(), value.float(), seed, rate, segments)[0]
    return mixed.to(query.dtype)


def _blocks(time: int, heads: int) -> Iterator[tuple[int, int, slice]]:
    """First and last row of each block of queries, and where its weights lie among those of a sample."""
    at = 0
    for start in range(0, time, ROWS):
        end = min(time, start + ROWS)
        size = heads * (end - start) * end
        yield start, end, slice(at, at + size)
        at += size


def _kept(time: int, heads: int) -> int:
    """How many weights a sample has."""
    *_, (_, _, place) = _blocks(time, heads)
    return int(place.stop)


@torch.library.custom_op("paddock::dropped_causal_attention", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, seed: Tensor, rate: float, segments: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """What every query gathers; the attention weights before dropout; 0 where they are dropped, 1 elsewhere."""
    batch, heads, time, width = query.shape
    mixed = query.new_empty(batch, time, heads, width).transpose(1, 2)
    weights = query.new_empty(batch, _kept(time, heads))
    mask = random_mask(seed, list(weights.shape), rate)
    later = torch.full((ROWS, ROWS), -torch.inf).triu(1)
    room = query.new_empty(heads * ROWS * time)
    for sample in range(batch):
        for start, end, place in _blocks(time, heads):
            shape = (heads, end - start, end)
            scores = weights[sample, place].view(shape)
            _product(scores, query[sample, :, start:end], key[sample, :, :end].mT, 1.0 / math.sqrt(width))
            scores[:, :, start:] += later[: end - start, : end - start]
            if segments is not None:
                scores.masked_fill_(segments[sample, start:end, None] != segments[sample, None, :end], -torch.inf)
            torch.softmax(scores, dim=-1, out=scores)
            left = torch.mul(scores, mask[sample, place].view(shape), out=room[: scores.numel()].view(shape))
            _product(mixed[sample, :, start:end], left, value[sample, :, :end], scale_of_kept(rate))
    return mixed, weights, mask


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, seed: Tensor, rate: float, segments: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, time, width = query.shape
    weights = query.new_empty(batch, _kept(time, heads))
    mixed = query.new_empty(batch, time, heads, width).transpose(1, 2)
    return mixed, weights, torch.empty_like(weights, dtype=torch.int8)


@torch.library.custom_op("paddock::dropped_causal_attention_backward", mutates_args=())
def _attend_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, mask: Tensor, rate: float
) -> Tensor:
    """The gradients of query, key and value, side by side as [batch, time, heads, 3, head size]."""
    batch, heads, time, width = query.shape
    together = query.new_empty(batch, time, heads, 3, width)
    for_query, for_key, for_value = together.permute(3, 0, 2, 1, 4).unbind()
    room = query.new_empty(heads * ROWS * time)
    scale, kept = 1.0 / math.sqrt(width), scale_of_kept(rate)
    for sample in range(batch):
        for start, end, place in reversed(list(_blocks(time, heads))):
            shape = (heads, end - start, end)
            probabilities, ones = weights[sample, place].view(shape), mask[sample, place].view(shape)
            outer = gradient[sample, :, start:end]
            before = 0.0 if end == time else 1.0  # the last block, which sees all keys, comes first
            left = torch.mul(probabilities, ones, out=room[: probabilities.numel()].view(shape))
            _product(for_value[sample, :, :end], left.mT, outer, kept, before)
            _product(left, outer, value[sample, :, :end].mT, kept)
            scores = torch._softmax_backward_data(left.mul_(ones), probabilities, -1, torch.float32)
            _product(for_query[sample, :, start:end], scores, key[sample, :, :end], scale)
            _product(for_key[sample, :, :end], scores.mT, query[sample, :, start:end], scale, before)
    return together


@_attend_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, mask: Tensor, rate: float
) -> Tensor:
    batch, heads, time, width = query.shape
    return query.new_empty(batch, time, heads, 3, width)


def _product(out: Tensor, left: Tensor, right: Tensor, scale: float, before: float = 0.0) -> None:
    """out = before · out + scale · left @ right, for a batch of matrices, in place."""
    torch.baddbmm(out, left, right, beta=before, alpha=scale, out=out)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, _, ctx.rate, _ = inputs
    _, weights, mask = output
    ctx.save_for_backward(query, key, value, weights, mask)
    ctx.mark_non_differentiable(weights, mask)


def _backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    together = _attend_backward(gradient, *ctx.saved_tensors, ctx.rate)
    return *together.permute(3, 0, 2, 1, 4).unbind(), None, None, None


_attend.register_autograd(_backward, setup_context=_remember)
