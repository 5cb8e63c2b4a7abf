"""Attention with dropout on its weights, for CPUs: no fused kernel there has it.

Queries go in blocks of rows. In causal attention each goes against the keys up to its own end, so that half of what a
mask would throw away is never computed; what is padding is never computed either. A block's weights stay in the cache
between one pass and the next, and the heads of one sample are one batched product. The weights are kept for the
backward pass, which walks the blocks in the opposite order.
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


def dropped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seed: Tensor,
    rate: float,
    *,
    causal: bool,
    segments: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Query, key and value are [batch, heads, time, head size]; computed in float32 whatever their type.

    Positions of different `segments` [batch, time] do not see each other. Beyond a sample's `lengths` [batch] nothing
    is seen, and nothing is gathered: zeros.
    """
    mixed: Tensor = _attend(query.float(), key.float(), value.float(), seed, rate, causal, segments, lengths)[0]
    return mixed.to(query.dtype)


def _blocks(length: int, heads: int, causal: bool) -> Iterator[tuple[int, int, int, slice]]:
    """First and last row of each block of queries, how many keys it sees, and where its weights lie among those of a
    sample."""
    at = 0
    for start in range(0, length, ROWS):
        end = min(length, start + ROWS)
        seen = end if causal else length
        size = heads * (end - start) * seen
        yield start, end, seen, slice(at, at + size)
        at += size


def _kept(time: int, heads: int, causal: bool) -> int:
    """How many weights a sample has."""
    *_, (_, _, _, place) = _blocks(time, heads, causal)
    return int(place.stop)


def _length(lengths: Tensor | None, sample: int, time: int) -> int:
    return time if lengths is None else int(lengths[sample])


@torch.library.custom_op("paddock::dropped_attention", mutates_args=())
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seed: Tensor,
    rate: float,
    causal: bool,
    segments: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """What every query gathers; the attention weights before dropout; 0 where they are dropped, 1 elsewhere."""
    batch, heads, time, width = query.shape
    mixed = query.new_empty(batch, time, heads, width).transpose(1, 2)
    weights = query.new_empty(batch, _kept(time, heads, causal))
    mask = random_mask(seed, list(weights.shape), rate)
    later = torch.full((ROWS, ROWS), -torch.inf).triu(1)
    room = query.new_empty(heads * ROWS * time)
    for sample in range(batch):
        length = _length(lengths, sample, time)
        mixed[sample, :, length:] = 0.0
        for start, end, seen, place in _blocks(length, heads, causal):
            shape = (heads, end - start, seen)
            scores = weights[sample, place].view(shape)
            _product(scores, query[sample, :, start:end], key[sample, :, :seen].mT, 1.0 / math.sqrt(width))
            if causal:
                scores[:, :, start:] += later[: end - start, : end - start]
            if segments is not None:
                scores.masked_fill_(segments[sample, start:end, None] != segments[sample, None, :seen], -torch.inf)
            torch.softmax(scores, dim=-1, out=scores)
            left = torch.mul(scores, mask[sample, place].view(shape), out=room[: scores.numel()].view(shape))
            _product(mixed[sample, :, start:end], left, value[sample, :, :seen], scale_of_kept(rate))
    return mixed, weights, mask


@_attend.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seed: Tensor,
    rate: float,
    causal: bool,
    segments: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, time, width = query.shape
    weights = query.new_empty(batch, _kept(time, heads, causal))
    mixed = query.new_empty(batch, time, heads, width).transpose(1, 2)
    return mixed, weights, torch.empty_like(weights, dtype=torch.int8)


@torch.library.custom_op("paddock::dropped_attention_backward", mutates_args=())
def _attend_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    mask: Tensor,
    lengths: Tensor | None,
    rate: float,
    causal: bool,
) -> Tensor:
    """The gradients of query, key and value, side by side as [batch, time, heads, 3, head size]."""
    batch, heads, time, width = query.shape
    together = query.new_empty(batch, time, heads, 3, width)
    for_query, for_key, for_value = together.permute(3, 0, 2, 1, 4).unbind()
    room = query.new_empty(heads * ROWS * time)
    scale, kept = 1.0 / math.sqrt(width), scale_of_kept(rate)
    for sample in range(batch):
        length = _length(lengths, sample, time)
        together[sample, length:] = 0.0
        for start, end, seen, place in reversed(list(_blocks(length, heads, causal))):
            shape = (heads, end - start, seen)
            probabilities, ones = weights[sample, place].view(shape), mask[sample, place].view(shape)
            outer = gradient[sample, :, start:end]
            add = end != length  # the last block, which sees all keys, comes first
            left = torch.mul(probabilities, ones, out=room[: probabilities.numel()].view(shape))
            _product(for_value[sample, :, :seen], left.mT, outer, kept, add)
            _product(left, outer, value[sample, :, :seen].mT, kept)
            scores = torch._softmax_backward_data(left.mul_(ones), probabilities, -1, torch.float32)
            _product(for_query[sample, :, start:end], scores, key[sample, :, :seen], scale)
            _product(for_key[sample, :, :seen], scores.mT, query[sample, :, start:end], scale, add)
    return together


@_attend_backward.register_fake
def _(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    mask: Tensor,
    lengths: Tensor | None,
    rate: float,
    causal: bool,
) -> Tensor:
    batch, heads, time, width = query.shape
    return query.new_empty(batch, time, heads, 3, width)


def _product(out: Tensor, left: Tensor, right: Tensor, scale: float, add: bool = False) -> None:
    """out = scale · left @ right for a batch of matrices, in place; or that added to it.

    Where `out` is not in one piece, torch would multiply one matrix after the other: a tenth slower for the whole.
    """
    if out.is_contiguous():
        torch.baddbmm(out, left, right, beta=float(add), alpha=scale, out=out)
    elif not add:
        torch.mul(torch.bmm(left, right), scale, out=out)
    else:
        out.add_(torch.bmm(left, right), alpha=scale)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, _, ctx.rate, ctx.causal, _, lengths = inputs
    _, weights, mask = output
    ctx.save_for_backward(query, key, value, weights, mask, lengths)
    ctx.mark_non_differentiable(weights, mask)


def _backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    together = _attend_backward(gradient, *ctx.saved_tensors, ctx.rate, ctx.causal)
    return *together.permute(3, 0, 2, 1, 4).unbind(), None, None, None, None, None


_attend.register_autograd(_backward, setup_context=_remember)
