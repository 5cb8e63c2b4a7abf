"""Attention by the best kernel there is for the case.

The fused kernel does it without holding time × time weights, with dropout too on accelerators. A CPU's has no dropout,
so that case is our own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.devices import adapter_of
from paddock.models.layers.basic import Linear
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.dropout import Dropout, draw_seed, masks_of
from paddock.models.layers.dropped_attention import dropped_attention
from paddock.parallel.placement import local


class SelfAttention(nn.Module):
    """Attention of every position to the others, or with `causal` to those before it.

    Rows of `qkv` lie head by head (query, key, value of head 0, then of head 1 …), so that cutting them into equal
    parts cuts between heads: how many heads are here is told by what the product puts out.
    """

    caches = True

    def __init__(self, hidden: int, heads: int, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.head_size = hidden // heads
        self.causal = causal
        self.qkv = Linear(hidden, 3 * hidden)
        self.output = Linear(hidden, hidden)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        *,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """x: [batch, time, hidden]. Causal attention minds `segments` [batch, time], which number the documents of a
        sample; attention in both directions minds `lengths` [batch], beyond which a sample is padding."""
        fused = self.qkv(x)
        batch, time, _ = fused.shape
        query, key, value = fused.view(batch, time, -1, 3, self.head_size).permute(3, 0, 2, 1, 4).unbind()
        if cache is not None:
            mixed = self._continue(query, key, value, cache)
        elif self.causal:
            mixed = causal_attention(query, key, value, self.dropout.active_rate, segments, self.dropout.tensor_rank)
        else:
            mixed = full_attention(query, key, value, self.dropout.active_rate, lengths, self.dropout.tensor_rank)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, -1))

    def _continue(self, query: Tensor, key: Tensor, value: Tensor, cache: KeyValueCache) -> Tensor:
        time = query.shape[2]
        key, value = cache.extend(self, key, value)
        begins = key.shape[2] == time
        assert begins or time == 1, "after the prompt, tokens come one at a time"
        return F.scaled_dot_product_attention(query, key, value, is_causal=begins)

    def cached_shape(self) -> tuple[int, int, Tensor]:
        """Heads here, the size of each, and a tensor of the type and on the device of what is cached."""
        weight = local(self.qkv.weight)
        return weight.shape[0] // (3 * self.head_size), self.head_size, weight


def causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rate: float,
    segments: Tensor | None = None,
    tensor_rank: int | None = None,
) -> Tensor:
    """Attention of every position to itself and those before it; all are [batch, heads, time, head size].

    With `segments` [batch, time], which number the documents of a sample, only to those of its own document.
    """
    if rate > 0.0 and adapter_of(query.device).computes_on_host:
        return dropped_attention(query, key, value, draw_seed(tensor_rank), rate, causal=True, segments=segments)
    with masks_of(tensor_rank if rate > 0.0 else None, query.device):
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
    tensor_rank: int | None = None,
) -> Tensor:
    """Attention of every position to every other; all are [batch, heads, time, head size].

    With `lengths` [batch], only to the first so many of each sample: the rest is padding, and what padding itself
    gathers is nobody's to use.
    """
    if rate > 0.0 and adapter_of(query.device).computes_on_host:
        return dropped_attention(query, key, value, draw_seed(tensor_rank), rate, causal=False, lengths=lengths)
    visible = None
    if lengths is not None and not _are_full(lengths, key.shape[2]):
        visible = (torch.arange(key.shape[2], device=key.device) < lengths.unsqueeze(-1))[:, None, None, :]
    with masks_of(tensor_rank if rate > 0.0 else None, query.device):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, dropout_p=rate)


def _are_full(lengths: Tensor, time: int) -> bool:
    """Whether no row has padding, where that is known at once: an accelerator would have to be waited for."""
    known = adapter_of(lengths.device).computes_on_host and not torch.compiler.is_compiling()
    return known and int(lengths.min()) >= time
