"""GPT-2, on one device, as plain PyTorch. Parallelism stands beside it, never inside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.gpt2.config import GPT2Config
from paddock.models.layers.attention import causal_attention
from paddock.models.layers.basic import Embedding, Linear
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.cross_entropy import linear_cross_entropy
from paddock.models.layers.dropout import dropout
from paddock.models.layers.initialization import Initial

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
}


class Attention(nn.Module):
    """Causal self-attention. Rows of `qkv` lie head by head (query, key, value of head 0, then of head 1 …),
    so that cutting them into equal parts cuts between heads."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.attention_dropout_rate
        self.qkv = Linear(config.hidden, 3 * config.hidden)
        self.output = Linear(config.hidden, config.hidden)

    def forward(
        self, x: Tensor, segments: Tensor | None = None, cache: KeyValueCache | None = None, layer: int = 0
    ) -> Tensor:
        batch, time, _ = x.shape
        query, key, value = self.qkv(x).view(batch, time, self.heads, 3, -1).permute(3, 0, 2, 1, 4).unbind()
        if cache is None:
            mixed = causal_attention(query, key, value, self.dropout, self.training, segments)
        else:
            begins = cache.length == 0
            assert begins or time == 1, "after the prompt, tokens come one at a time"
            key, value = cache.extend(layer, key, value)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=begins)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, -1))


class FeedForward(nn.Module):
    """Widen, bend, narrow."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.input = Linear(config.hidden, config.feed_forward_width)
        self.output = Linear(config.feed_forward_width, config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activation(self.input(x)))


class Block(nn.Module):
    """Attention and feed-forward, each behind a layer norm and added to the residual stream."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.dropout = config.dropout

    def forward(
        self, x: Tensor, segments: Tensor | None = None, cache: KeyValueCache | None = None, layer: int = 0
    ) -> Tensor:
        x = x + dropout(self.attention(self.attention_norm(x), segments, cache, layer), self.dropout, self.training)
        return x + dropout(self.feed_forward(self.feed_forward_norm(x)), self.dropout, self.training)


class GPT2(nn.Module):
    """Token and position embeddings, the blocks, a last norm, and a head that is the token embedding again."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = Embedding(config.vocab, config.hidden)
        self.position_embedding = Embedding(config.context, config.hidden)
        # A dictionary, so that a block keeps its name when a pipeline stage holds only some of them.
        self.layers = nn.ModuleDict({str(index): Block(config) for index in range(config.layers)})
        self.final_norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)

    def forward(
        self,
        tokens: Tensor,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Logits [batch, time, vocabulary]; or, given labels, the cross-entropy summed over those that count.

        `positions` [batch, time] count from where each document begins, and `segments` number the documents, whose
        tokens then see no other's; without them a sample is one text.
        """
        if positions is None:
            offset = 0 if cache is None else cache.length
            positions = torch.arange(offset, offset + tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        x = dropout(x, self.config.dropout, self.training)
        for name, block in self.layers.items():
            x = block(x, segments) if cache is None else block(x, segments, cache, int(name))
        if cache is not None:
            cache.advance(tokens.shape[1])
        x = self.final_norm(x)
        if labels is None:
            return F.linear(x, self.token_embedding.weight)
        return linear_cross_entropy(x, self.token_embedding.weight, labels)

    def blocks(self) -> list[nn.Module]:
        """The parts that repeat: what is compiled, recomputed and cut into stages."""
        return list(self.layers.values())

    def new_cache(self, batch: int, capacity: int) -> KeyValueCache:
        """An empty cache for generating from `batch` prompts."""
        shape = self.config
        like = self.token_embedding.weight
        return KeyValueCache(shape.layers, batch, shape.heads, capacity, shape.hidden // shape.heads, like)

    def initial(self, name: str) -> Initial:
        """Normal weights, zero biases, unit norms; projections into the residual stream begin smaller."""
        if name.endswith("bias"):
            return Initial()
        if "norm" in name:
            return Initial(constant=1.0)
        if name.endswith("output.weight"):
            return Initial(std=self.config.init_std / math.sqrt(2 * self.config.layers))
        return Initial(std=self.config.init_std)


def build(config: GPT2Config) -> GPT2:
    """What the registry calls."""
    return GPT2(config)
