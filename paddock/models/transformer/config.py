"""The sizes that every transformer has; and those of a single stack, with what a block of it costs."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from paddock.models.config import Exchange, ModelConfig, UnitCost, check_heads

# The limits of sizes are far from what anybody trains, and near enough that a slip of the pen, or a config that was
# made to do harm, is an error instead of a machine without memory.
LARGEST_VOCABULARY = 100_000_000
LONGEST_CONTEXT = 100_000_000


class TransformerConfig(ModelConfig):
    """Blocks of attention and feed-forward layers."""

    fields_without_shape: ClassVar[tuple[str, ...]] = ("heads", "activation", "norm_eps")

    layers: int = Field(12, gt=0, le=10_000)
    """Transformer blocks."""
    hidden: int = Field(768, gt=0, le=1_000_000)
    """Width of the residual stream."""
    heads: int = Field(12, gt=0, le=1_000_000)
    """Attention heads."""
    feed_forward: int | None = Field(None, gt=0, le=10_000_000)
    """Width of the feed-forward layer; None is 4 × hidden."""
    vocab: int = Field(50257, gt=0, le=LARGEST_VOCABULARY)
    """Tokens in the vocabulary."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the embeddings and on what each layer adds to the residual stream."""
    attention_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on the attention weights; None is the same as dropout."""
    activation: Literal["gelu_tanh", "gelu", "relu"] = "gelu_tanh"
    """The feed-forward non-linearity."""
    norm_eps: float = Field(1e-5, gt=0, allow_inf_nan=False)
    """Added to the variance in layer norms."""

    @property
    def feed_forward_width(self) -> int:
        return self.feed_forward or 4 * self.hidden

    @property
    def attention_dropout_rate(self) -> float:
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    def vocabulary(self) -> int:
        return self.vocab

    def tensor_parts(self) -> dict[str, int]:
        return {"heads": self.heads, "feed-forward columns": self.feed_forward_width}


class StackConfig(TransformerConfig):
    """One stack of blocks over learned positions."""

    context: int = Field(1024, gt=0, le=LONGEST_CONTEXT)
    """The longest sequence: the number of learned positions."""
    init_std: float = Field(0.02, gt=0, allow_inf_nan=False)
    """Standard deviation of initial weights."""

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> Self:
        check_heads(self.hidden, self.heads)
        return self

    def longest_sequence(self) -> int:
        return self.context

    def block_cost(self, name: str, length: int, exchange: Exchange) -> UnitCost:
        """One block over a sequence: two operations per weight of every matrix product, and attention in full (not
        halved by causality)."""
        hidden, wide = self.hidden, self.feed_forward_width
        products = 4 * hidden * hidden + 2 * hidden * wide
        return UnitCost(
            name,
            parameters=products + 9 * hidden + wide,  # biases 5 × hidden + wide, two norms 4 × hidden
            flops=2.0 * length * (products + 2 * hidden * length),
            # Inputs of both norms and of all four products, queries, keys and values, and the non-linearity's input;
            # attention keeps the logarithm of a sum for every row, and a norm two numbers.
            saved=length * (9 * hidden + 2 * wide + self.heads + 4),
            output=length * hidden,
            exchange=exchange,
        )
