"""How ResNet lies over processes: as replicas, whole or in shards. Neither its layers nor its stages are cut."""

from __future__ import annotations

from torch import Tensor, nn

from paddock.models.resnet.config import ResNetConfig
from paddock.models.resnet.inference import accelerate as accelerate
from paddock.models.resnet.model import ResNet

MAIN_INPUT = "images"
"""The name of what the model reads, in a batch."""


class Stage(nn.Module):
    """The one stage that there is: the whole model."""

    def __init__(self, model: ResNet, layers: range, first: bool, last: bool) -> None:
        assert first and last
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        scores: Tensor = self.model(images, labels)
        return scores


def layer_costs(config: ResNetConfig) -> tuple[float, float, float]:
    """Of what comes before the layers, of a layer and of what follows: for balancing stages, of which there is one."""
    return 0.0, 1.0, 0.0
