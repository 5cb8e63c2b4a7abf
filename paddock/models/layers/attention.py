"""Attention by the best kernel there is for the case.

The fused kernel does it without holding time × time weights, with dropout too on accelerators. A CPU's has no dropout
and no bias that learns, so those cases are our own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.devices import adapter_of
from paddock.models.layers.basic import Linear
from paddock.models.layers.blocked_attention import blocked_attention
from paddock.models.layers.cache import KeyValueCache, Piece
from paddock.models.layers.dropout import Dropout, masks_of
from paddock.parallel.placement import local


class SelfAttention(nn.Module):
    """Attention of every position to the others, or with `causal` to those before it.

    Rows of `qkv` lie head by head (query, key, value of head 0, then of head 1 …), so that cutting them into equal
    parts cuts between heads: how many heads are here is told by what the product puts out.
    """

    caches = "target"

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
        else:
            mixed = attend(
                query, key, value, causal=self.causal, dropout=self.dropout, segments=segments, lengths=lengths
            )
        return self.output(mixed.transpose(1, 2).reshape(batch, time, -1))

    def _continue(self, query: Tensor, key: Tensor, value: Tensor, cache: KeyValueCache) -> Tensor:
        if cache.ragged:
            pieces = cache.extend_pieces(self, key, value)
            return torch.cat([_attend_to(piece, query, keys, values) for piece, keys, values in pieces], dim=2)
        key, value = cache.extend(self, key, value)
        mask = None if cache.begins else cache.mask(query.device)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=cache.begins)

    def cached_shape(self) -> tuple[int, int, Tensor]:
        """Heads here, the size of each, and a tensor of the type and on the device of what is cached."""
        weight = local(self.qkv.weight)
        return weight.shape[0] // (3 * self.head_size), self.head_size, weight


def _attend_to(piece: Piece, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """What a row's new tokens, which are a piece of all, gather from its keys and values."""
    here, causal = query[:, :, piece.where], piece.mask is None
    return F.scaled_dot_product_attention(here, keys, values, attn_mask=piece.mask, is_causal=causal)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = False,
    cross: bool = False,
    scale: float | None = None,
    dropout: Dropout | None = None,
    segments: Tensor | None = None,
    lengths: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Attention of every query to every key, or with `causal` to those up to its own place; all are [batch, heads,
    time, head size]. With `cross`, keys and values are of another sequence.

    With `segments` [batch, time], which number the documents of a sample, only to those of its own document. With
    `lengths` [batch], only to the first so many keys of each sample: the rest is padding, and what padding itself
    gathers is nobody's to use. `bias` [heads, queries, keys] is added to scores, which are multiplied by `scale`: one
    over the root of the head size, unless told.
    """
    rate, rank = (0.0, None) if dropout is None else (dropout.active_rate, dropout.tensor_rank)
    learns = bias is not None and bias.requires_grad and torch.is_grad_enabled()
    if (rate > 0.0 or learns) and adapter_of(query.device).computes_on_host:
        return blocked_attention(
            query,
            key,
            value,
            causal=causal,
            cross=cross,
            scale=scale,
            rate=rate,
            tensor_rank=rank,
            segments=segments,
            lengths=lengths,
            bias=bias,
        )
    mask = _visible(query, key, causal and (bias is not None or segments is not None), segments, lengths)
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(mask.logical_not(), -torch.inf)
        mask = mask.to(query.dtype)
    with masks_of(rank if rate > 0.0 else None, query.device):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=rate, is_causal=causal and mask is None, scale=scale
        )


def _visible(
    query: Tensor, key: Tensor, causal: bool, segments: Tensor | None, lengths: Tensor | None
) -> Tensor | None:
    """What each query may see, as booleans that spread over [batch, heads, queries, keys]; None where that is all."""
    found: Tensor | None = None
    if causal:
        found = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    if segments is not None:
        assert found is not None, "documents are told apart in causal attention"
        found = (found & (segments.unsqueeze(-1) == segments.unsqueeze(-2))).unsqueeze(1)
    if lengths is not None and not _are_full(lengths, key.shape[2]):
        there = (torch.arange(key.shape[2], device=key.device) < lengths.unsqueeze(-1))[:, None, None, :]
        found = there if found is None else found & there
    return found


def _are_full(lengths: Tensor, time: int) -> bool:
    """Whether no row has padding, where that is known at once: an accelerator would have to be waited for."""
    known = adapter_of(lengths.device).computes_on_host and not torch.compiler.is_compiling()
    return known and int(lengths.min()) >= time
