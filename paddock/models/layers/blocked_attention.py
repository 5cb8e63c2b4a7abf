"""Attention for CPUs with what no fused kernel there has: dropout on its weights, and a bias that learns.

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

from paddock.models.layers.basic import widen
from paddock.models.layers.dropout import draw_seed, random_mask, scale_of_kept

ROWS = 128
"""Queries in a block."""


def blocked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    cross: bool = False,
    scale: float | None = None,
    rate: float = 0.0,
    tensor_rank: int | None = None,
    segments: Tensor | None = None,
    lengths: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Query, key and value are [batch, heads, time, head size]; computed in float32, or in float64 where they are.

    With `cross`, keys and values are of another sequence than queries. Scores are multiplied by `scale` (one over the
    root of the head size, unless told), and `bias` [heads, queries, keys] is added. Weights are dropped at `rate`.
    Positions of different `segments` [batch, time] do not see each other. Beyond a sample's `lengths` [batch] no key
    is seen, and no query of the same sequence gathers anything: zeros.
    """
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    seed = draw_seed(tensor_rank) if rate > 0.0 else torch.empty((), dtype=torch.int64)
    wide_bias = None if bias is None else widen(bias)
    wide_query, wide_key, wide_value = widen(query), widen(key), widen(value)
    mixed: Tensor = _attend(
        wide_query, wide_key, wide_value, wide_bias, seed, rate, scale, causal, cross, segments, lengths
    )[0]
    return mixed.to(query.dtype)


def _blocks(queries: int, keys: int, heads: int, causal: bool) -> Iterator[tuple[int, int, int, slice]]:
    """First and last row of each block of queries, how many keys it sees, and where its weights lie among those of a
    sample."""
    at = 0
    for start in range(0, queries, ROWS):
        end = min(queries, start + ROWS)
        seen = end if causal else keys
        size = heads * (end - start) * seen
        yield start, end, seen, slice(at, at + size)
        at += size


def _kept(queries: int, keys: int, heads: int, causal: bool) -> int:
    """How many weights a sample has."""
    *_, (_, _, _, place) = _blocks(queries, keys, heads, causal)
    return int(place.stop)


def _sizes(query: Tensor, key: Tensor, lengths: Tensor | None, sample: int, cross: bool) -> tuple[int, int]:
    """How many queries and keys of a sample count."""
    keys = key.shape[2] if lengths is None else int(lengths[sample])
    return (query.shape[2] if cross else keys), keys


@torch.library.custom_op("paddock::blocked_attention", mutates_args=())
def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    rate: float,
    scale: float,
    causal: bool,
    cross: bool,
    segments: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """What every query gathers; the attention weights before dropout; 0 where they are dropped, 1 elsewhere (nothing
    where none are)."""
    mixed, weights, mask = _outputs(query, key, rate, causal)
    heads, time = query.shape[1:3]
    if rate > 0.0:
        mask = random_mask(seed, list(weights.shape), rate)
    later = torch.full((ROWS, ROWS), -torch.inf).triu(1)
    room = query.new_empty(heads * ROWS * key.shape[2] if rate > 0.0 else 0)
    for sample in range(len(query)):
        queries, keys = _sizes(query, key, lengths, sample, cross)
        if queries < time:
            mixed[sample, :, queries:] = 0.0
        for start, end, seen, place in _blocks(queries, keys, heads, causal):
            shape = (heads, end - start, seen)
            scores = weights[sample, place].view(shape)
            if bias is not None:
                scores.copy_(bias[:, start:end, :seen])
            _product(scores, query[sample, :, start:end], key[sample, :, :seen].mT, scale, add=bias is not None)
            if causal:
                scores[:, :, start:] += later[: end - start, : end - start]
            if segments is not None:
                scores.masked_fill_(segments[sample, start:end, None] != segments[sample, None, :seen], -torch.inf)
            torch.softmax(scores, dim=-1, out=scores)
            left = scores
            if rate > 0.0:
                left = torch.mul(scores, mask[sample, place].view(shape), out=room[: scores.numel()].view(shape))
            _product(mixed[sample, :, start:end], left, value[sample, :, :seen], scale_of_kept(rate))
    return mixed, weights, mask


def _outputs(query: Tensor, key: Tensor, rate: float, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Room for what `_attend` puts out."""
    batch, heads, time, width = query.shape
    mixed = query.new_empty(batch, time, heads, width).transpose(1, 2)
    weights = query.new_empty(batch, _kept(time, key.shape[2], heads, causal))
    return mixed, weights, torch.empty(weights.shape if rate > 0.0 else 0, dtype=torch.int8, device=query.device)


@_attend.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    seed: Tensor,
    rate: float,
    scale: float,
    causal: bool,
    cross: bool,
    segments: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _outputs(query, key, rate, causal)


@torch.library.custom_op("paddock::blocked_attention_backward", mutates_args=())
def _attend_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    mask: Tensor,
    lengths: Tensor | None,
    rate: float,
    scale: float,
    causal: bool,
    cross: bool,
    biased: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of query, key and value in one piece (`_roles` tells them apart), and of the bias."""
    together, for_bias = _gradients(query, key, biased)
    for_query, for_key, for_value = _roles(together, query, key, cross)
    heads, time, keys_there = query.shape[1], query.shape[2], key.shape[2]
    room, kept = query.new_empty(heads * ROWS * keys_there), scale_of_kept(rate)
    for sample in range(len(query)):
        queries, keys = _sizes(query, key, lengths, sample, cross)
        for part, used, whole in (
            (for_query, queries, time),
            (for_key, keys, keys_there),
            (for_value, keys, keys_there),
        ):
            if used < whole:
                part[sample, :, used:] = 0.0
        for start, end, seen, place in reversed(list(_blocks(queries, keys, heads, causal))):
            shape = (heads, end - start, seen)
            probabilities, outer = weights[sample, place].view(shape), gradient[sample, :, start:end]
            add = end != queries  # the last block, which sees all keys, comes first
            left = room[: probabilities.numel()].view(shape)
            if rate > 0.0:
                ones = mask[sample, place].view(shape)
                torch.mul(probabilities, ones, out=left)
                _product(for_value[sample, :, :seen], left.mT, outer, kept, add)
            else:
                _product(for_value[sample, :, :seen], probabilities.mT, outer, kept, add)
            _product(left, outer, value[sample, :, :seen].mT, kept)
            if rate > 0.0:
                left.mul_(ones)
            scores = torch._softmax_backward_data(left, probabilities, -1, left.dtype)
            if biased:
                for_bias[:, start:end, :seen] += scores
            _product(for_query[sample, :, start:end], scores, key[sample, :, :seen], scale)
            _product(for_key[sample, :, :seen], scores.mT, query[sample, :, start:end], scale, add)
    return together, for_bias


def _gradients(query: Tensor, key: Tensor, biased: bool) -> tuple[Tensor, Tensor]:
    """Room for what the backward pass puts out."""
    heads, queries, keys = query.shape[1], query.shape[2], key.shape[2]
    together = query.new_empty(query.numel() + 2 * key.numel())
    return together, query.new_zeros((heads, queries, keys) if biased else (0,))


def _roles(together: Tensor, query: Tensor, key: Tensor, cross: bool) -> tuple[Tensor, ...]:
    """The gradients of query, key and value, as views of one piece: side by side as the products that made them."""
    batch, heads, queries, width = query.shape
    if not cross:
        return together.view(batch, queries, heads, 3, width).permute(3, 0, 2, 1, 4).unbind()
    pair = together[query.numel() :].view(batch, key.shape[2], heads, 2, width).permute(3, 0, 2, 1, 4)
    return together[: query.numel()].view(batch, queries, heads, width).transpose(1, 2), *pair.unbind()


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
    scale: float,
    causal: bool,
    cross: bool,
    biased: bool,
) -> tuple[Tensor, Tensor]:
    return _gradients(query, key, biased)


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
    query, key, value, bias, _, ctx.rate, ctx.scale, ctx.causal, ctx.cross, _, lengths = inputs
    _, weights, mask = output
    ctx.biased = bias is not None
    ctx.save_for_backward(query, key, value, weights, mask, lengths)
    ctx.mark_non_differentiable(weights, mask)


def _backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # once: what is computed again for this is given out a single time
    together, for_bias = _attend_backward(gradient, *saved, ctx.rate, ctx.scale, ctx.causal, ctx.cross, ctx.biased)
    roles = _roles(together, saved[0], saved[1], ctx.cross)
    return *roles, for_bias if ctx.biased else None, None, None, None, None, None, None, None


_attend.register_autograd(_backward, setup_context=_remember)
