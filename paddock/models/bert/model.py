"""BERT, on one device, as plain PyTorch. Parallelism stands beside it, never inside it."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from paddock.models.bert.config import BertConfig
from paddock.models.bert.heads import MaskedLanguageHead, build_head
from paddock.models.layers.attention import SelfAttention
from paddock.models.layers.basic import Embedding, FeedForward, LayerNorm
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.dropout import Dropout
from paddock.models.layers.initialization import Initial
from paddock.models.model import Batch, Carry, Model


class InputEmbedding(nn.Module):
    """Tokens, where they stand, and which text they belong to, as vectors."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.token = Embedding(config.vocab, config.hidden)
        self.position = Embedding(config.context, config.hidden)
        self.token_type = Embedding(config.token_types, config.hidden)
        self.norm = LayerNorm(config.hidden, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, token_types: Tensor | None) -> Tensor:
        """Both [batch, time]; without types, all tokens are of type 0."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        types = torch.zeros_like(positions) if token_types is None else token_types
        x = self.token(tokens) + self.position(positions) + self.token_type(types)
        return self.dropout(self.norm(x))


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and then normed."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.hidden, config.heads, config.attention_dropout_rate, causal=False)
        self.attention_norm = LayerNorm(config.hidden, eps=config.norm_eps)
        self.feed_forward = FeedForward(config.hidden, config.feed_forward_width, config.activation)
        self.feed_forward_norm = LayerNorm(config.hidden, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, lengths=lengths)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Bert(Model):
    """Embeddings, the blocks, and the head of one task.

    tokens, token_types: [batch, time]. `lengths` [batch] says how many tokens of each row count: the others are
    padding, and nobody sees them. Without it all do. Labels and outputs are the head's.
    """

    inputs: ClassVar = ("tokens", "labels", "token_types", "lengths", "places")
    config: BertConfig

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(config)
        # A dictionary, so that a block keeps its name when a pipeline stage holds only some of them.
        self.layers = nn.ModuleDict({str(index): Block(config) for index in range(config.layers)})
        self.head = build_head(config)

    def begin(self, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        return {"x": self.embedding(batch["tokens"], batch.get("token_types"))}

    def units(self) -> list[str]:
        return [f"layers.{name}" for name in self.layers]

    def run(self, unit: str, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        return {"x": self.get_submodule(unit)(carry["x"], batch.get("lengths"))}

    def finish(self, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Tensor:
        tied = (self.embedding.token.weight,) if isinstance(self.head, MaskedLanguageHead) else ()
        found: Tensor = self.head(carry["x"], batch, *tied)
        return found

    def initial(self, name: str) -> Initial:
        """Normal weights, zero biases, unit norms."""
        if name.endswith("bias"):
            return Initial()
        return Initial(constant=1.0) if "norm" in name else Initial(std=self.config.init_std)
