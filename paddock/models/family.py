"""The contract of a model family: everything that Paddock asks of one.

A family of our own is a folder beside this file whose `__init__.py` has a `FAMILY`; one from outside comes by the
entry point `paddock.families`, or registers itself with `register_family`. Methods import what they need when they are
called, so that naming a family costs nothing: a config needs no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from paddock.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed.tensor.parallel import ParallelStyle

    from paddock.models.config import ModelConfig, SampleShape
    from paddock.models.model import Model
    from paddock.models.weight_names import HuggingFaceNames, TensorRule, WeightNames


class Family(ABC):
    """One family of models: its config, its model, and what stands beside the model."""

    name: ClassVar[str]
    """As recipes spell it: `model.family`."""
    model_types: ClassVar[tuple[str, ...]] = ()
    """What Hugging Face's `model_type` calls it, where that is not its name."""

    @abstractmethod
    def config_class(self) -> type[ModelConfig]:
        """The model section of the family's recipes."""

    @abstractmethod
    def build(self, config: Any) -> Model:
        """The model that a config describes, on torch's current default device."""

    @abstractmethod
    def example(
        self, config: Any, samples: int, shape: SampleShape, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        """A batch of random samples with labels, for measuring, and for finding what goes from unit to unit."""

    def tensor_plan(self, model: Any, sequence: bool) -> dict[str, ParallelStyle]:
        """How each module that is there is cut over tensor-parallel processes; with `sequence`, the activations
        between them too. A family whose config has `tensor_parts` has a plan."""
        return {}

    def vocabulary_tensors(self, config: Any) -> tuple[str, ...]:
        """The parameters that have a row for every token and no other sign of the vocabulary; none where the vocabulary
        cannot be made smaller."""
        return ()

    def huggingface(self) -> HuggingFaceNames:
        """What the family's configs and weights are called in Hugging Face folders."""
        raise ConfigError(
            f"{self.name} is not known to Hugging Face", fix="keep it as a checkpoint: a run, or a folder of one"
        )

    def tensor_rules(self, config: Any) -> list[TensorRule]:
        """Every tensor of the model, with the head that it belongs to: what checkpoints of other tasks share with it.
        A family with heads says which they are; here, all of it is one model without any."""
        import torch

        from paddock.models.weight_names import same

        with torch.device("meta"):
            state = self.build(config).state_dict()
        return [same(name, name, *tensor.shape) for name, tensor in state.items()]

    def public_files(self) -> WeightNames:
        """What weights are called in files of their own, which everybody in the field shares."""
        raise ConfigError(
            f"weights of {self.name} come in a folder, not in a file",
            why="a file alone does not say what they are",
            fix="give the Hugging Face folder, the run directory or the checkpoint that they are in",
        )

    def optimize_for_inference(self, model: Any) -> None:  # noqa: B027
        """Change a model with its final weights, whole on this process, so that it computes the same sooner."""
