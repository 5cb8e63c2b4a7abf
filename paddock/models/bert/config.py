"""The shape of a BERT, and what it costs."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from paddock.errors import bad_value
from paddock.models.config import BEGIN, FINISH, MOST_CLASSES, Exchange, SampleShape, UnitCost
from paddock.models.transformer.config import LARGEST_VOCABULARY, LONGEST_CONTEXT, StackConfig

Head = Literal["masked_language_modeling", "question_answering", "sequence_classification"]
ASKED = 0.15
"""Of the positions of a text, those that a masked-language head is asked about."""


class BertConfig(StackConfig):
    """An encoder that sees a text, or a pair of texts, in both directions, and a head for one task."""

    family: Literal["bert"] = "bert"
    """The model family."""
    vocab: int = Field(30522, gt=0, le=LARGEST_VOCABULARY)
    """Tokens in the vocabulary."""
    context: int = Field(512, gt=0, le=LONGEST_CONTEXT)
    """The longest sequence: the number of learned positions."""
    token_types: int = Field(2, gt=0, le=100_000)
    """Kinds of tokens: those of the first text and those of the second."""
    activation: Literal["gelu", "gelu_tanh", "relu"] = "gelu"
    """The non-linearity of the feed-forward layers and of the masked-language head."""
    norm_eps: float = Field(1e-12, gt=0, allow_inf_nan=False)
    """Added to the variance in layer norms."""
    head: Head = "masked_language_modeling"
    """What stands on the encoder; it belongs to the task of the same name."""
    classes: int = Field(2, ge=2, le=MOST_CLASSES)
    """sequence_classification: how many classes are told apart."""
    reset_head: bool = False
    """Begin the head anew, though the weights that training begins from have one."""

    @model_validator(mode="after")
    def _classes_belong_to_a_head(self) -> Self:
        if self.classes != 2 and self.head != "sequence_classification":
            raise bad_value(
                "model.classes",
                self.classes,
                f"model.head = {self.head} has no classes and would ignore it",
                "set --model.head sequence_classification, or leave it out",
            )
        return self

    def task(self) -> str:
        return self.head

    def tasks(self) -> tuple[str, ...]:
        return get_args(Head)

    def num_classes(self) -> int:
        return self.classes if self.head == "sequence_classification" else 0

    def resets_head(self) -> bool:
        return self.reset_head

    def units(self, shape: SampleShape, *, sequence: bool = False, recompute: bool = False) -> list[UnitCost]:
        length, hidden, again = shape.source, self.hidden, int(recompute)
        activation = length * hidden
        # Recomputing a block repeats all that it exchanges on its way forward: a norm comes last, and needs it.
        block = (4 + 2 * again, 4 + 2 * again) if sequence else (4 + 4 * again, 4)
        layer = Exchange(*(count * activation for count in block))
        embedding = (self.vocab + self.context + self.token_types) * hidden + 2 * hidden
        return [
            UnitCost(
                BEGIN,
                parameters=embedding,
                flops=0.0,
                saved=activation + 4 * length,
                output=activation,
                exchange=Exchange(0, (3 if sequence else 2) * activation),
            ),
            *(self.block_cost(f"layers.{index}", length, layer) for index in range(self.layers)),
            self._head_cost(length, sequence),
        ]

    def _head_cost(self, length: int, sequence: bool) -> UnitCost:
        """A masked-language head looks at the positions that it is asked about, a classifier at the first token."""
        hidden, activation = self.hidden, length * self.hidden
        dense = hidden * hidden
        exchange = Exchange(0, activation if sequence else 0)
        if self.head == "question_answering":
            return UnitCost(FINISH, 2 * hidden + 2, 4.0 * activation, activation + 4 * length, exchange=exchange)
        if self.head == "sequence_classification":
            weights = dense + self.classes * hidden
            return UnitCost(
                FINISH, weights + hidden + self.classes, 2.0 * weights, 2 * hidden + self.classes, exchange=exchange
            )
        asked, tokens = max(1, round(ASKED * length)), self.vocab * hidden
        return UnitCost(
            FINISH,
            parameters=dense + 3 * hidden + self.vocab,
            flops=2.0 * asked * (dense + tokens),
            saved=asked * (4 * hidden + 3) + tokens + self.vocab,
            exchange=Exchange(2 * ASKED * activation, exchange.float32),
            shared={"embedding.token.weight": tokens},
        )
