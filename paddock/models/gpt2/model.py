"""GPT-2, on one device, as plain PyTorch. Parallelism stands beside it, never inside it."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from paddock.models.gpt2.config import GPT2Config
from paddock.models.layers.attention import SelfAttention
from paddock.models.layers.basic import Embedding, FeedForward, LayerNorm
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.cross_entropy import VocabularyHead
from paddock.models.layers.dropout import Dropout
from paddock.models.layers.initialization import Initial
from paddock.models.model import Batch, Carry, Model


class InputEmbedding(nn.Module):
    """Tokens, and where they stand, as vectors."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.token = Embedding(config.vocab, config.hidden)
        self.position = Embedding(config.context, config.hidden)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """`positions` [batch, time]; without them, tokens stand where they are."""
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self.token(tokens) + self.position(positions))


class Block(nn.Module):
    """Attention and feed-forward, each behind a layer norm and added to the residual stream."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(config.hidden, eps=config.norm_eps)
        self.attention = SelfAttention(config.hidden, config.heads, config.attention_dropout_rate, causal=True)
        self.feed_forward_norm = LayerNorm(config.hidden, eps=config.norm_eps)
        self.feed_forward = FeedForward(config.hidden, config.feed_forward_width, config.activation)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, segments: Tensor | None = None, cache: KeyValueCache | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), segments=segments, cache=cache))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class GPT2(Model):
    """Token and position embeddings, the blocks, a last norm, and a head that is the token embedding again.

    tokens, labels: [batch, time]. `positions` [batch, time] count from where each document begins, and `segments`
    number the documents, whose tokens then see no other's; without them a sample is one text. Outputs are logits
    [batch, time, vocabulary]; of `targets`, which are as labels, only what the head finds of them. With `places`
    [batch, places] labels and targets are those of these places alone.
    """

    inputs: ClassVar = ("tokens", "labels", "positions", "segments", "targets", "places")
    writes: ClassVar = "tokens"
    config: GPT2Config

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(config)
        # A dictionary, so that a block keeps its name when a pipeline stage holds only some of them.
        self.layers = nn.ModuleDict({str(index): Block(config) for index in range(config.layers)})
        self.final_norm = LayerNorm(config.hidden, eps=config.norm_eps)
        self.head = VocabularyHead()

    def begin(self, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        tokens, positions = batch["tokens"], batch.get("positions")
        if cache is not None:
            positions = cache.positions(tokens.device)
        return {"x": self.embedding(tokens, positions)}

    def units(self) -> list[str]:
        return [f"layers.{name}" for name in self.layers]

    def run(self, unit: str, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        return {"x": self.get_submodule(unit)(carry["x"], batch.get("segments"), cache)}

    def finish(self, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Tensor:
        x = carry["x"] if cache is None else cache.last(carry["x"])
        weight, asked = self.embedding.token.weight, {name: batch.get(name) for name in ("targets", "places")}
        scores: Tensor = self.head(self.final_norm(x), weight, batch.get("labels"), **asked)
        return scores

    def initial(self, name: str) -> Initial:
        """Normal weights, zero biases, unit norms; projections into the residual stream begin smaller."""
        if name.endswith("bias"):
            return Initial()
        if "norm" in name:
            return Initial(constant=1.0)
        if name.endswith("output.weight"):
            return Initial(std=self.config.init_std / math.sqrt(2 * self.config.layers))
        return Initial(std=self.config.init_std)
