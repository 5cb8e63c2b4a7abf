"""The shape of a GPT-2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from paddock.models.config import ModelConfig, check_heads


class GPT2Config(ModelConfig):
    """A decoder-only transformer with learned positions and a head tied to the token embedding."""

    family: Literal["gpt2"] = "gpt2"
    """The model family."""
    layers: int = Field(12, gt=0)
    """Transformer blocks."""
    hidden: int = Field(768, gt=0)
    """Width of the residual stream."""
    heads: int = Field(12, gt=0)
    """Attention heads; they divide hidden."""
    feed_forward: int | None = Field(None, gt=0)
    """Width of the feed-forward layer; None is 4 × hidden."""
    vocab: int = Field(50257, gt=0)
    """Tokens in the vocabulary."""
    context: int = Field(1024, gt=0)
    """The longest sequence: the number of learned positions."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the embeddings and on what each block adds to the residual stream."""
    attention_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on the attention weights; None is the same as dropout."""
    activation: Literal["gelu_tanh", "gelu", "relu"] = "gelu_tanh"
    """The feed-forward non-linearity; GPT-2 itself has gelu_tanh."""
    norm_eps: float = Field(1e-5, gt=0)
    """Added to the variance in layer norms."""
    init_std: float = Field(0.02, gt=0)
    """Standard deviation of initial weights (projections into the residual stream: ÷ √(2 × layers))."""

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> GPT2Config:
        check_heads(self.hidden, self.heads)
        return self

    @property
    def feed_forward_width(self) -> int:
        return self.feed_forward or 4 * self.hidden

    @property
    def attention_dropout_rate(self) -> float:
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    def num_parameters(self) -> int:
        hidden, wide = self.hidden, self.feed_forward_width
        attention = 4 * hidden * hidden + 4 * hidden
        feed_forward = 2 * hidden * wide + wide + hidden
        block = attention + feed_forward + 4 * hidden
        return (self.vocab + self.context) * hidden + self.layers * block + 2 * hidden

    def forward_flops(self, sample_size: int) -> float:
        """Two per weight of every matrix product, and attention counted in full (not halved by causality)."""
        hidden = self.hidden
        weights = self.layers * (4 * hidden * hidden + 2 * hidden * self.feed_forward_width) + self.vocab * hidden
        attention = 2 * self.layers * hidden * sample_size
        return sample_size * 2.0 * (weights + attention)

    def longest_sequence(self) -> int:
        return self.context

    def num_layers(self) -> int:
        return self.layers

    def vocabulary(self) -> int:
        return self.vocab

    def tensor_parts(self) -> dict[str, int]:
        return {"heads": self.heads, "feed-forward columns": self.feed_forward_width}
