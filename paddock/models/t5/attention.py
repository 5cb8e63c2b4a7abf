"""T5's attention: without scaling, without biases, and with a number for every distance between two positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from paddock.models.layers.attention import attend
from paddock.models.layers.basic import Linear
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

    def forward(self, queries: int, keys: int, first: int = 0) -> Tensor:
        """[heads here, queries, keys], for queries that stand at `first` and behind it."""
        weight = local(self.weight)
        distances = torch.arange(1 - first - queries, keys - first, device=weight.device)  # key minus query
        by_distance = weight[:, self.bucket(distances)]
        # Rows begin one distance further to the left from query to query: each is a piece of the same line.
        return _Slide.apply(by_distance, queries)

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

    def __init__(self, config: T5Config, *, causal: bool) -> None:
        super().__init__()
        self.head_size, self.causal = config.head_size, causal
        self.qkv = Linear(config.hidden, 3 * config.inner, bias=False)
        self.output = Linear(config.inner, config.hidden, bias=False)
        self.dropout = Dropout(config.attention_dropout_rate)

    def forward(self, x: Tensor, bias: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x: [batch, time, hidden]; bias: [heads, time, time]; beyond `lengths` [batch] a sample is padding."""
        query, key, value = by_head(self.qkv(x), 3, self.head_size)
        mixed = attend(
            query, key, value, causal=self.causal, scale=1.0, dropout=self.dropout, lengths=lengths, bias=bias
        )
        return self.output(mixed.transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """Attention of what is written to what was read."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.query = Linear(config.hidden, config.inner, bias=False)
        self.key_value = Linear(config.hidden, 2 * config.inner, bias=False)
        self.output = Linear(config.inner, config.hidden, bias=False)
        self.dropout = Dropout(config.attention_dropout_rate)

    def forward(self, y: Tensor, memory: Tensor, lengths: Tensor | None = None) -> Tensor:
        """y: [batch, target, hidden]; memory: [batch, source, hidden], of which `lengths` [batch] count."""
        (query,) = by_head(self.query(y), 1, self.head_size)
        key, value = by_head(self.key_value(memory), 2, self.head_size)
        mixed = attend(query, key, value, cross=True, scale=1.0, dropout=self.dropout, lengths=lengths)
        return self.output(mixed.transpose(1, 2).flatten(2))


def by_head(fused: Tensor, roles: int, head_size: int) -> tuple[Tensor, ...]:
    """What a fused projection put out, [batch, time, heads × roles × head size], as one [batch, heads, time, head
    size] a role."""
    batch, time, _ = fused.shape
    return fused.view(batch, time, -1, roles, head_size).permute(3, 0, 2, 1, 4).unbind()
