"""BERT, on one device, as plain PyTorch. Parallelism stands beside it, never inside it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from paddock.models.bert.config import BertConfig
from paddock.models.bert.heads import MaskedLanguageHead, build_head
from paddock.models.labels import IGNORED
from paddock.models.layers.attention import full_attention
from paddock.models.layers.basic import Embedding, Linear
from paddock.models.layers.dropout import dropout
from paddock.models.layers.feed_forward import FeedForward
from paddock.models.layers.initialization import Initial


class InputEmbedding(nn.Module):
    """Tokens, where they stand, and which text they belong to, as vectors."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.token = Embedding(config.vocab, config.hidden)
        self.position = Embedding(config.context, config.hidden)
        self.token_type = Embedding(config.token_types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.dropout = config.dropout

    def forward(self, tokens: Tensor, token_types: Tensor | None) -> Tensor:
        """Both [batch, time]; without types, all tokens are of type 0."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        types = torch.zeros_like(positions) if token_types is None else token_types
        x = self.token(tokens) + self.position(positions) + self.token_type(types)
        return dropout(self.norm(x), self.dropout, self.training)


class Attention(nn.Module):
    """Self-attention in both directions. Rows of `qkv` lie head by head (query, key, value of head 0, then of head
    1 …), so that cutting them into equal parts cuts between heads."""

    shard: int | None = None
    """Which part of the heads is here, where several processes share them: each drops other weights."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.head_size = config.hidden // config.heads
        self.dropout = config.attention_dropout_rate
        self.qkv = Linear(config.hidden, 3 * config.hidden)
        self.output = Linear(config.hidden, config.hidden)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        fused = self.qkv(x)
        batch, time, _ = fused.shape
        query, key, value = fused.view(batch, time, -1, 3, self.head_size).permute(3, 0, 2, 1, 4).unbind()
        rate = self.dropout if self.training else 0.0
        mixed = full_attention(query, key, value, rate, lengths, self.shard)
        return self.output(mixed.transpose(1, 2).reshape(batch, time, -1))


class Block(nn.Module):
    """Attention and feed-forward, each added to its input and then normed."""

    shard: int | None = None
    """Which part of the sequence is here, where several processes share it: each drops other elements."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.feed_forward = FeedForward(config.hidden, config.feed_forward_width, config.activation)
        self.feed_forward_norm = nn.LayerNorm(config.hidden, eps=config.norm_eps)
        self.dropout = config.dropout

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        attended = self.attention(x, lengths)
        x = self.attention_norm(x + dropout(attended, self.dropout, self.training, self.shard))
        fed = self.feed_forward(x)
        return self.feed_forward_norm(x + dropout(fed, self.dropout, self.training, self.shard))


class Bert(nn.Module):
    """Embeddings, the blocks, and the head of one task."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = InputEmbedding(config)
        # A dictionary, so that a block keeps its name when a pipeline stage holds only some of them.
        self.layers = nn.ModuleDict({str(index): Block(config) for index in range(config.layers)})
        self.head = build_head(config)

    def forward(
        self,
        tokens: Tensor,
        labels: Tensor | None = None,
        token_types: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """What the head puts out; or, given labels, its loss summed over those that count.

        tokens, token_types: [batch, time]. `lengths` [batch] says how many tokens of each row count: the others are
        padding, and nobody sees them. Without it all do.
        """
        x = self.embedding(tokens, token_types)
        for block in self.layers.values():
            x = block(x, lengths)
        return self.finish(x, labels, lengths)

    def finish(self, x: Tensor, labels: Tensor | None, lengths: Tensor | None) -> Tensor:
        """The head, over what the last block puts out."""
        if isinstance(self.head, MaskedLanguageHead):
            return self.head(x, labels, self.embedding.token.weight)
        return self.head(x, labels, lengths)

    def blocks(self) -> list[nn.Module]:
        """The parts that repeat: what is compiled, recomputed and cut into stages."""
        return list(self.layers.values())

    def initial(self, name: str) -> Initial:
        """Normal weights, zero biases, unit norms."""
        if name.endswith("bias"):
            return Initial()
        return Initial(constant=1.0) if "norm" in name else Initial(std=self.config.init_std)


def build(config: BertConfig) -> Bert:
    """What the registry calls."""
    return Bert(config)


def example(config: BertConfig, samples: int, size: int, generator: torch.Generator) -> dict[str, Tensor]:
    """A batch of random samples, for measuring. Of masked tokens it asks for 15 %, in every row as many."""
    tokens = torch.randint(config.vocab, (samples, size), generator=generator)
    if config.head == "question_answering":
        labels = torch.randint(size, (samples, 2), generator=generator)
    elif config.head == "sequence_classification":
        labels = torch.randint(config.classes, (samples,), generator=generator)
    else:
        labels = torch.full_like(tokens, IGNORED)
        asked = slice(0, max(1, round(0.15 * size)))
        labels[:, asked] = tokens[:, asked]
    return {"tokens": tokens, "labels": labels}
