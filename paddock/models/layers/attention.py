"""Attention by the best kernel there is for the case.

The fused kernel does it without holding time × time weights, with dropout too on accelerators. A CPU's has no dropout,
so that case is our own.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from paddock.devices import adapter_of
from paddock.models.layers.dropout import draw_seed, masks_of
from paddock.models.layers.dropped_attention import dropped_attention


def causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rate: float,
    segments: Tensor | None = None,
    shard: int | None = None,
) -> Tensor:
    """Attention of every position to itself and those before it; all are [batch, heads, time, head size].

    With `segments` [batch, time], which number the documents of a sample, only to those of its own document.
    """
    if rate > 0.0 and adapter_of(query.device).computes_on_host:
        return dropped_attention(query, key, value, draw_seed(shard), rate, causal=True, segments=segments)
    with masks_of(shard if rate > 0.0 else None, query.device):
        if segments is None:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=rate)
        time = query.shape[2]
        earlier = torch.ones(time, time, dtype=torch.bool, device=query.device).tril()
        visible = (earlier & (segments.unsqueeze(-1) == segments.unsqueeze(-2))).unsqueeze(1)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, dropout_p=rate)


def full_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rate: float,
    lengths: Tensor | None = None,
    shard: int | None = None,
) -> Tensor:
    """Attention of every position to every other; all are [batch, heads, time, head size].

    With `lengths` [batch], only to the first so many of each sample: the rest is padding, and what padding itself
    gathers is nobody's to use.
    """
    if rate > 0.0 and adapter_of(query.device).computes_on_host:
        return dropped_attention(query, key, value, draw_seed(shard), rate, causal=False, lengths=lengths)
    visible = None
    if lengths is not None and not _are_full(lengths, key.shape[2]):
        visible = (torch.arange(key.shape[2], device=key.device) < lengths.unsqueeze(-1))[:, None, None, :]
    with masks_of(shard if rate > 0.0 else None, query.device):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, dropout_p=rate)


def _are_full(lengths: Tensor, time: int) -> bool:
    """Whether no row has padding, where that is known at once: an accelerator would have to be waited for."""
    known = adapter_of(lengths.device).computes_on_host and not torch.compiler.is_compiling()
    return known and int(lengths.min()) >= time
