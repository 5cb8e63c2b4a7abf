"""A torch module of the user's own, whose forward computes its loss: one unit, which only data parallelism spreads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from paddock.errors import ConfigError
from paddock.models.config import ModelConfig, SampleShape
from paddock.models.family import Family

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from paddock.models.own.config import OwnConfig
    from paddock.models.own.model import OwnModel
    from paddock.models.weight_names import TensorRule


class OwnFamily(Family):
    name: ClassVar = "own"

    def config_class(self) -> type[ModelConfig]:
        from paddock.models.own.config import OwnConfig

        return OwnConfig

    def build(self, config: OwnConfig) -> OwnModel:
        """With its memory and its values, whatever the default device: a foreign module may make its tensors as it
        likes."""
        from paddock.models.own.model import OwnModel, own_module

        return OwnModel(config, own_module(config.module, config.seed))

    def example(
        self, config: OwnConfig, samples: int, shape: SampleShape, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        raise ConfigError(
            f"what a batch of {config.module} looks like is not known",
            why="a module of your own takes whatever your dataset gives",
            fix="measure a training run: its log has samples/s",
        )

    def tensor_rules(self, config: OwnConfig) -> list[TensorRule]:
        """None: names and shapes are compared with those of a checkpoint as they are, without building what it was
        trained from, which may be gone."""
        return []


FAMILY = OwnFamily()
