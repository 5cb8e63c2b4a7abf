"""What every model family's config has in common, and the arithmetic that the trainer needs from it."""

from __future__ import annotations

from abc import abstractmethod

from paddock.schema import ConfigModel


class ModelConfig(ConfigModel):
    """The shape of a model. Each family adds its own fields."""

    family: str
    """The model family."""

    @abstractmethod
    def num_parameters(self) -> int:
        """How many numbers the model learns."""

    @abstractmethod
    def forward_flops(self, sequence_length: int) -> float:
        """Floating-point operations of one forward pass over one sample; training costs three times that."""

    def longest_sequence(self) -> int | None:
        """The most positions the model can see at once; None if it has no such limit."""
        return None

    @abstractmethod
    def vocabulary(self) -> int:
        """How many token ids the model knows."""

    @abstractmethod
    def num_layers(self) -> int:
        """How many layers a pipeline can be cut between."""

    @abstractmethod
    def tensor_parts(self) -> dict[str, int]:
        """The sizes that tensor parallelism cuts into equal parts, by what they count."""
