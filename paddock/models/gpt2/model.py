"""GPT-2, on one device, as plain PyTorch. Parallelism stands beside it, never inside it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.gpt2.config import GPT2Config
from paddock.models.layers.attention import causal_attention
from paddock.models.layers.basic import Embedding, Linear
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.cross_entropy import linear_cross_entropy
from paddock.models.layers.dropout import dropout
from paddock.models.layers.feed_forward import FeedForward
from paddock.models.layers.initialization import Initial
from paddock.parallel.vocabulary import VocabularyShards


class InputEmbedding(nn.Module):
    """Tokens, and where they stand, as vectors."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.token = Embedding(config.vocab, config.hidden)
        self.position = Embedding(config.context, config.hidden)
        self.dropout = config.dropout

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """`positions` [batch, time]; without them, tokens stand where they are."""
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        return dropout(self.token(tokens) + self.position(positions), self.dropout, self.training)


class Attention(nn.Module):
    """Causal self-attention. Rows of `qkv` lie head by head (query, key, value of head 0, then of head 1 …),
    so that cutting them into equal parts cuts between heads."""

    shard: int | None = None
    """Which part of the heads is here, where several processes share them: each drops other weights."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.head_size = config.hidden // config.heads
        self.dropout = config.attention_dropout_rate
        self.qkv = Linear(config.hidden, 3 * config.hidden)
        self.output = Linear(config.hidden, config.hidden)

    def forward(
        self, x: Tensor, segments: Tensor | None = None, cache: KeyValueCache | None = None, layer: int = 0
    ) -> Tensor:
        fused = self.qkv(x)
        batch, time, _ = fused.shape
        query, key, value = fused.view(batch, time, -1, 3, self.head_size).permute(3, 0, 2, 1, 4).unbind()
        if cache is None:
            rate = self.dropout if self.training else 0.0
            mixed = causal_attention(query, key, value, rate, segments, self.shard)
        else:
            begins = cache.length == 0
            assert begins or time == 1, "after the prompt, tokens come one at a time"
            key, value = cache.extend(layer, key, value)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=begins)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, -1))


class Block(nn.Module):
    """Attention and feed-forward, each behind a layer norm and added to the residual stream."""

    shard: int | None = None
    """Which part of the sequence is here, where several processes share it: each drops other elements."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.feed_forward = FeedForward(config.hidden, config.feed_forward_width, config.activation)
        self.dropout = config.dropout

    def forward(
        self, x: Tensor, segments: Tensor | None = None, cache: KeyValueCache | None = None, layer: int = 0
    ) -> Tensor:
        attended = self.attention(self.attention_norm(x), segments, cache, layer)
        x = x + dropout(attended, self.dropout, self.training, self.shard)
        fed = self.feed_forward(self.feed_forward_norm(x))
        return x + dropout(fed, self.dropout, self.training, self.shard)


class TiedHead(nn.Module):
    """Scores for every token: how alike a vector is to each token's own embedding."""

    vocabulary: VocabularyShards | None = None
    """How to join what other processes know, where each holds a part of the vocabulary."""

    def forward(self, x: Tensor, weight: Tensor, labels: Tensor | None) -> Tensor:
        if labels is None:
            return F.linear(x, weight)
        if self.vocabulary is not None:
            weight = self.vocabulary.part_here(weight)
        return linear_cross_entropy(x, weight, labels, self.vocabulary)


class GPT2(nn.Module):
    """Token and position embeddings, the blocks, a last norm, and a head that is the token embedding again."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(config)
        # A dictionary, so that a block keeps its name when a pipeline stage holds only some of them.
        self.layers = nn.ModuleDict({str(index): Block(config) for index in range(config.layers)})
        self.final_norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.head = TiedHead()

    def forward(
        self,
        tokens: Tensor,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Logits [batch, time, vocabulary]; or, given labels, the cross-entropy summed over those that count.

        Given a cache, which then holds these tokens too, the logits are those of the last one alone.

        `positions` [batch, time] count from where each document begins, and `segments` number the documents, whose
        tokens then see no other's; without them a sample is one text.
        """
        if cache is not None:
            positions = torch.arange(cache.length, cache.length + tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens, positions)
        for name, block in self.layers.items():
            x = block(x, segments) if cache is None else block(x, segments, cache, int(name))
        if cache is not None:
            cache.advance(tokens.shape[1])
            x = x[:, -1:]
        return self.head(self.final_norm(x), self.embedding.token.weight, labels)

    def blocks(self) -> list[nn.Module]:
        """The parts that repeat: what is compiled, recomputed and cut into stages."""
        return list(self.layers.values())

    def new_cache(self, batch: int, capacity: int) -> KeyValueCache:
        """An empty cache for generating from `batch` prompts."""
        shape = self.config
        like = self.embedding.token.weight
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


def example(config: GPT2Config, samples: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
    """A batch of random samples, for measuring."""
    tokens = torch.randint(config.vocab, (samples, size + 1), generator=generator)
    return {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}
