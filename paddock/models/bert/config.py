"""The shape of a BERT."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from paddock.errors import bad_value
from paddock.models.config import ModelConfig, check_heads

Head = Literal["masked_language_modeling", "question_answering", "sequence_classification"]


class BertConfig(ModelConfig):
    """An encoder that sees a text, or a pair of texts, in both directions, and a head for one task."""

    family: Literal["bert"] = "bert"
    """The model family."""
    layers: int = Field(12, gt=0)
    """Transformer blocks."""
    hidden: int = Field(768, gt=0)
    """Width of the residual stream."""
    heads: int = Field(12, gt=0)
    """Attention heads; they divide hidden."""
    feed_forward: int | None = Field(None, gt=0)
    """Width of the feed-forward layer; None is 4 × hidden."""
    vocab: int = Field(30522, gt=0)
    """Tokens in the vocabulary."""
    context: int = Field(512, gt=0)
    """The longest sequence: the number of learned positions."""
    token_types: int = Field(2, gt=0)
    """Kinds of tokens: those of the first text and those of the second."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the embeddings, on what each layer adds to its input, and before a classifier."""
    attention_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on the attention weights; None is the same as dropout."""
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    """The non-linearity of the feed-forward layers and of the masked-language head."""
    norm_eps: float = Field(1e-12, gt=0)
    """Added to the variance in layer norms."""
    init_std: float = Field(0.02, gt=0)
    """Standard deviation of initial weights."""
    head: Head = "masked_language_modeling"
    """What stands on the encoder; it belongs to the task of the same name."""
    classes: int = Field(2, ge=2)
    """sequence_classification: how many classes are told apart."""
    reset_head: bool = False
    """Begin the head anew, though the weights that training begins from have one."""

    @model_validator(mode="after")
    def _check(self) -> BertConfig:
        check_heads(self.hidden, self.heads)
        if self.classes != 2 and self.head != "sequence_classification":
            raise bad_value(
                "model.classes",
                self.classes,
                f"model.head = {self.head} has no classes and would ignore it",
                "set --model.head sequence_classification, or leave it out",
            )
        return self

    @property
    def feed_forward_width(self) -> int:
        return self.feed_forward or 4 * self.hidden

    @property
    def attention_dropout_rate(self) -> float:
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    def task(self) -> str:
        return self.head

    def num_parameters(self) -> int:
        hidden, wide = self.hidden, self.feed_forward_width
        block = 4 * (hidden * hidden + hidden) + 2 * hidden * wide + wide + hidden + 4 * hidden
        embedding = (self.vocab + self.context + self.token_types) * hidden + 2 * hidden
        dense = hidden * hidden + hidden
        head = {
            "masked_language_modeling": dense + 2 * hidden + self.vocab,
            "question_answering": 2 * hidden + 2,
            "sequence_classification": dense + self.classes * hidden + self.classes,
        }
        return embedding + self.layers * block + head[self.head]

    def forward_flops(self, sample_size: int) -> float:
        """Two per weight of every matrix product, and attention. The masked-language head is counted as if it were
        asked about every position."""
        hidden = self.hidden
        weights = self.layers * (4 * hidden * hidden + 2 * hidden * self.feed_forward_width)
        attention = 2 * self.layers * hidden * sample_size
        dense = hidden * hidden
        head = {
            "masked_language_modeling": sample_size * (dense + self.vocab * hidden),
            "question_answering": sample_size * 2 * hidden,
            "sequence_classification": dense + self.classes * hidden,
        }
        return 2.0 * (sample_size * (weights + attention) + head[self.head])

    def longest_sequence(self) -> int:
        return self.context

    def num_layers(self) -> int:
        return self.layers

    def vocabulary(self) -> int:
        return self.vocab

    def tensor_parts(self) -> dict[str, int]:
        return {"heads": self.heads, "feed-forward columns": self.feed_forward_width}
