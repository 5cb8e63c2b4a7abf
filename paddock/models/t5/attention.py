"""T5's attention: without scaling, without biases, and with a number for every distance between two positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.layers.attention import attend
from paddock.models.layers.basic import Linear
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.dropout import Dropout
from paddock.models.t5.config import T5Config
from paddock.parallel.placement import local


class RelativePositionBias(nn.Module):
    """What every head adds to the score of a query and a key that stand so far apart.

    Near distances have a number each, far ones share one with others about as far; in the decoder, where nobody looks
    ahead, all of them are distances back. One bias serves all blocks of a stack.
    """

    def __init__(self, config: T5Config, *, both_ways: bool) -> None:
        super().__init__()
        self.both_ways, self.max_distance = both_ways, config.max_distance
        self.weight = nn.Parameter(torch.empty(config.heads, config.position_buckets))

    def forward(self, length: int, cache: KeyValueCache | None = None) -> Tensor:
        """[heads here, queries, keys] of that length; or, given a cache, for its new tokens and all so far."""
        weight = local(self.weight)
        if cache is not None:
            return self._continued(weight, cache)
        distances = torch.arange(1 - length, length, device=weight.device)  # key minus query
        by_distance = weight[:, self.bucket(distances)]
        # Rows begin one distance further to the left from query to query: each is a piece of the same line.
        return _Slide.apply(by_distance, length)

    def _continued(self, weight: Tensor, cache: KeyValueCache) -> Tensor:
        """[rows or 1, heads here, queries, keys]; what a token does not see is minus infinity."""
        positions, mask = cache.positions(weight.device), cache.mask(weight.device)
        distances = torch.arange(cache.longest, device=weight.device) - positions.unsqueeze(-1)
        bias = weight[:, self.bucket(distances)].transpose(0, 1)
        return bias if mask is None else bias.masked_fill(mask.logical_not(), -torch.inf)

    def bucket(self, distance: Tensor) -> Tensor:
        """The number of the bucket that a distance is in."""
        buckets, ahead = self.weight.shape[1], torch.zeros_like(distance)
        if self.both_ways:
            buckets //= 2
            ahead = (distance > 0) * buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        near = buckets // 2
        ratio = torch.log(distance.clamp(min=1).float() / near) / math.log(self.max_distance / near)
        far = (near + (ratio * (buckets - near)).long()).clamp(max=buckets - 1)
        return ahead + torch.where(distance < near, distance, far)


class _Slide(torch.autograd.Function):
    """Windows of a line [heads, queries + keys - 1], each one place before the last: [heads, queries, keys]."""

    @staticmethod
    def forward(ctx: object, line: Tensor, queries: int) -> Tensor:
        return line.unfold(1, line.shape[1] - queries + 1, 1).flip(1)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        """Sums along the diagonals: with rows one longer than the line, each begins one place later than the last."""
        heads, queries, keys = gradient.shape
        line = queries + keys - 1
        skewed = nn.functional.pad(gradient.flip(1), (0, queries)).flatten(1)[:, : queries * line]
        return skewed.view(heads, queries, line).sum(1), None


class SelfAttention(nn.Module):
    """Attention within a stack; rows of `qkv` lie head by head, as in `layers/attention.py`."""

    caches = "target"

    def __init__(self, config: T5Config, *, causal: bool) -> None:
        super().__init__()
        self.head_size, self.causal = config.head_size, causal
        self.qkv = Linear(config.hidden, 3 * config.inner, bias=False)
        self.output = Linear(config.inner, config.hidden, bias=False)
        self.dropout = Dropout(config.attention_dropout_rate)

    def forward(
        self, x: Tensor, bias: Tensor, lengths: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """x: [batch, time, hidden]; bias: [heads, time, time]; beyond `lengths` [batch] a sample is padding."""
        query, key, value = by_head(self.qkv(x), 3, self.head_size)
        if cache is not None:
            key, value = cache.extend(self, key, value)
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype), scale=1.0)
        else:
            mixed = attend(
                query, key, value, causal=self.causal, scale=1.0, dropout=self.dropout, lengths=lengths, bias=bias
            )
        return self.output(mixed.transpose(1, 2).flatten(2))

    def cached_shape(self) -> tuple[int, int, Tensor]:
        """Heads here, the size of each, and a tensor of the type and on the device of what is cached."""
        weight = local(self.qkv.weight)
        return weight.shape[0] // (3 * self.head_size), self.head_size, weight


class CrossAttention(nn.Module):
    """Attention of what is written to what was read."""

    caches = "source"

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.query = Linear(config.hidden, config.inner, bias=False)
        self.key_value = Linear(config.hidden, 2 * config.inner, bias=False)
        self.output = Linear(config.inner, config.hidden, bias=False)
        self.dropout = Dropout(config.attention_dropout_rate)

    def forward(
        self, y: Tensor, memory: Tensor | None, lengths: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """y: [batch, target, hidden]; memory: [batch, source, hidden], of which `lengths` [batch] count; without it,
        what the cache remembers."""
        (query,) = by_head(self.query(y), 1, self.head_size)
        if memory is not None:
            key, value = by_head(self.key_value(memory), 2, self.head_size)
        if cache is not None:
            if memory is not None:
                cache.remember(self, key, value)
            key, value = cache.recall(self)
            mask = cache.source_mask(query.device)
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
        else:
            mixed = attend(query, key, value, cross=True, scale=1.0, dropout=self.dropout, lengths=lengths)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def cached_shape(self) -> tuple[int, int, Tensor]:
        """Heads here, the size of each, and a tensor of the type and on the device of what is cached."""
        weight = local(self.key_value.weight)
        return weight.shape[0] // (2 * self.head_size), self.head_size, weight


def by_head(fused: Tensor, roles: int, head_size: int) -> tuple[Tensor, ...]:
    """What a fused projection put out, [batch, time, heads × roles × head size], as one [batch, heads, time, head
    size] a role."""
    batch, time, _ = fused.shape
    return fused.view(batch, time, -1, roles, head_size).permute(3, 0, 2, 1, 4).unbind()
