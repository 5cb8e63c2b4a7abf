"""What every model family's config has in common, and the arithmetic that the trainer needs from it."""

from __future__ import annotations

from abc import abstractmethod

from paddock.errors import bad_value
from paddock.schema import ConfigModel


class ModelConfig(ConfigModel):
    """The shape of a model. Each family adds its own fields."""

    family: str
    """The model family."""

    @abstractmethod
    def num_parameters(self) -> int:
        """How many numbers the model learns."""

    @abstractmethod
    def forward_flops(self, sample_size: int) -> float:
        """Floating-point operations of one forward pass over one sample (of so many positions, or of an image of so
        many pixels a side); training costs three times that."""

    def task(self) -> str:
        """What the model is made for: the task that takes it, and that of weights which come without a recipe."""
        return "language_modeling"

    def longest_sequence(self) -> int | None:
        """The most positions the model can see at once; None if it has no such limit."""
        return None

    def vocabulary(self) -> int:
        """How many token ids the model knows; 0 if it reads no tokens."""
        return 0

    def num_layers(self) -> int:
        """How many layers a pipeline can be cut between; 1 is a model that no pipeline takes."""
        return 1

    def tensor_parts(self) -> dict[str, int]:
        """The sizes that tensor parallelism cuts into equal parts, by what they count; none if it cuts nothing."""
        return {}


def check_heads(hidden: int, heads: int) -> None:
    """Attention heads must divide the width, or an error that names numbers near by that do."""
    if hidden % heads:
        near = [n for n in range(1, hidden + 1) if hidden % n == 0]
        near.sort(key=lambda n: abs(n - heads))
        raise bad_value(
            "model.heads",
            heads,
            f"hidden {hidden} does not divide into {heads} heads",
            f"choose heads from {', '.join(map(str, sorted(near[:4])))}, or another hidden",
        )
