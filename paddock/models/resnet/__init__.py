"""ResNet: images told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from paddock.models.config import ModelConfig, SampleShape
from paddock.models.family import Family

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from paddock.models.resnet.config import ResNetConfig
    from paddock.models.resnet.model import ResNet
    from paddock.models.weight_names import HuggingFaceNames, TensorRule, WeightNames


class ResNetFamily(Family):
    name: ClassVar = "resnet"

    def config_class(self) -> type[ModelConfig]:
        from paddock.models.resnet.config import ResNetConfig

        return ResNetConfig

    def build(self, config: ResNetConfig) -> ResNet:
        from paddock.models.resnet.model import ResNet

        return ResNet(config)

    def example(
        self, config: ResNetConfig, samples: int, shape: SampleShape, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        """Images that lie in memory as image data does: pixel by pixel."""
        import torch

        from paddock.models.resnet.config import IMAGE_CHANNELS

        size = shape.source
        images = torch.randn(samples, size, size, IMAGE_CHANNELS, generator=generator).permute(0, 3, 1, 2)
        return {"images": images, "labels": torch.randint(config.classes, (samples,), generator=generator)}

    def tensor_rules(self, config: ResNetConfig) -> list[TensorRule]:
        return self.huggingface().tensors(config)

    def huggingface(self) -> HuggingFaceNames:
        from paddock.models.resnet import huggingface

        return huggingface

    def public_files(self) -> WeightNames:
        from paddock.models.resnet import weights

        return weights

    def optimize_for_inference(self, model: ResNet) -> None:
        from paddock.models.resnet.inference import fold_norms

        fold_norms(model)


FAMILY = ResNetFamily()
