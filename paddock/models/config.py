"""What every model family's config has in common: what its model takes, and what each unit of it costs.

A family states its costs once, as one list; parameters, FLOPs, balanced stages, memory and traffic are all sums over
it. No torch here: a plan needs no device.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

from paddock.errors import bad_value
from paddock.parallel.config import divisors
from paddock.parallel.pipeline.schedules import BEGIN as BEGIN
from paddock.parallel.pipeline.schedules import FINISH as FINISH
from paddock.schema import ConfigModel

IGNORED = -100
"""The label of a position that does not count in the loss: torch's own convention."""
MOST_CLASSES = 10_000_000


@dataclass(frozen=True)
class SampleShape:
    """How large a sample is."""

    source: int
    """Tokens, or the pixels along an image's side."""
    target: int = 0
    """Tokens that a decoder is to write; 0 where the model has one stack."""

    def __str__(self) -> str:
        return f"{self.source} → {self.target}" if self.target else str(self.source)


class Exchange(NamedTuple):
    """Numbers of a sample that tensor-parallel processes gather or scatter in a step (a sum is both): forward and
    backward, each as often as it happens."""

    compute: float = 0.0
    """In the type of the computation."""
    float32: float = 0.0


NO_EXCHANGE = Exchange()


@dataclass(frozen=True)
class UnitCost:
    """What a unit costs, for one sample."""

    name: str
    """As the model calls it: layers.0 …, or BEGIN and FINISH."""
    parameters: int
    """That no unit before it has."""
    flops: float
    """Of a forward pass; training costs three times that."""
    saved: int = 0
    """Numbers kept for the backward pass, without dropout."""
    output: int = 0
    """Numbers handed to the next unit."""
    exchange: Exchange = NO_EXCHANGE
    shared: dict[str, int] = field(default_factory=dict)
    """Parameters of units before it that it uses too, by name: a pipeline holds them more than once."""


class ModelConfig(ConfigModel):
    """The shape of a model. Each family adds its own fields."""

    family: str
    """The model family."""

    has_stages: ClassVar[bool] = True
    """Whether a pipeline can be cut between its units."""

    @abstractmethod
    def units(self, shape: SampleShape, *, sequence: bool = False, recompute: bool = False) -> list[UnitCost]:
        """The costs of what comes before the units, of each unit, and of what comes after, for a sample of that shape.

        `sequence` and `recompute` (of the layout) change what tensor-parallel processes exchange, and nothing else.
        """

    fields_without_shape: ClassVar[tuple[str, ...]] = ()
    """Fields that change what the model computes, though no tensor's shape shows them, or not why it is another."""

    def num_parameters(self) -> int:
        """How many numbers the model learns."""
        return sum(unit.parameters for unit in self.units(SampleShape(1, 1)))

    def forward_flops(self, shape: SampleShape) -> float:
        """Floating-point operations of one forward pass over one sample; training costs three times that."""
        return sum(unit.flops for unit in self.units(shape))

    def num_units(self) -> int:
        """How many units a pipeline can deal out."""
        return len(self.units(SampleShape(1, 1))) - 2 if self.has_stages else 1

    def task(self) -> str:
        """What the model is made for: the task that takes it, and that of weights which come without a recipe."""
        return "language_modeling"

    def tasks(self) -> tuple[str, ...]:
        """What a model of this family can be made for, by another `model.head`."""
        return (self.task(),)

    def serves(self, task: str) -> bool:
        """Whether the model, as it is, can be trained for a task."""
        return task == self.task()

    def start_token(self) -> int | None:
        """The token that a decoder begins with; None where there is no decoder of its own."""
        return None

    def longest_sequence(self) -> int | None:
        """The most positions the model can see at once; None if it has no such limit."""
        return None

    def vocabulary(self) -> int:
        """How many token ids the model knows; 0 if it reads no tokens."""
        return 0

    def num_classes(self) -> int:
        """How many classes the model tells apart; 0 if it tells none."""
        return 0

    def variant(self) -> str:
        """What a model with these settings is called, where a family has several kinds; empty for what has no name."""
        return ""

    def in_words(self, field: str) -> str:
        """What the value of a field means, where the value alone does not tell."""
        return ""

    def resets_head(self) -> bool:
        """Whether the head begins anew, though the weights that training begins from have one."""
        return False

    def is_channels_last(self) -> bool:
        """Whether weights and activations lie with the channels of a pixel side by side."""
        return False

    def mixes_samples(self) -> bool:
        """Whether what a sample gives depends on which others are in its micro-batch: then layouts differ."""
        return False

    def without_dropout(self) -> Self:
        """The same model, computing the same in training every time."""
        rates = {name: 0.0 for name in type(self).model_fields if "dropout" in name}
        return self.model_copy(update=rates)

    def tensor_parts(self) -> dict[str, int]:
        """The sizes that tensor parallelism cuts into equal parts, by what they count; none if it cuts nothing."""
        return {}


def check_heads(hidden: int, heads: int) -> None:
    """Attention heads must divide the width, or an error that names numbers near by that do."""
    if hidden % heads:
        near = sorted(divisors(hidden), key=lambda n: abs(n - heads))
        raise bad_value(
            "model.heads",
            heads,
            f"hidden {hidden} does not divide into {heads} heads",
            f"choose heads from {', '.join(map(str, sorted(near[:4])))}, or another hidden",
        )
