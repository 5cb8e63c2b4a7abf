"""ResNet, on one device, as plain PyTorch, under the public names: conv1, bn1, layer1.0.conv1 … fc."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.models.config import IGNORED
from paddock.models.layers.basic import widen
from paddock.models.layers.batch_norm import BatchNorm
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.initialization import Initial
from paddock.models.model import Batch, Carry, Model
from paddock.models.resnet import config as shape
from paddock.models.resnet.config import ResNetConfig


class Block(nn.Module):
    """Convolutions, each with its norm, whose result is added to what came in."""

    def __init__(self, block: shape.Block, config: ResNetConfig) -> None:
        super().__init__()
        self.depth = len(block.convolutions)
        for number, one in enumerate(block.convolutions, start=1):
            self.add_module(f"conv{number}", convolution(one))
            self.add_module(f"bn{number}", norm(one.outputs, config))
        if block.shortcut is not None:
            self.downsample: nn.Module | None = nn.Sequential(
                convolution(block.shortcut), norm(block.shortcut.outputs, config)
            )
        else:
            self.downsample = None

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        for number in range(1, self.depth + 1):
            x = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(x))
            if number < self.depth:
                x = F.relu(x, inplace=True)
        return F.relu(x.add_(shortcut), inplace=True)


class ResNet(Model):
    """A stem, four stages of blocks, and a linear layer over the mean of all places.

    images: [batch, 3, height, width]. `labels` are class numbers [batch], or how much of each class there is
    [batch, classes]. Outputs are logits [batch, classes].
    """

    inputs: ClassVar = ("images", "labels")
    config: ResNetConfig

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.config = config
        self.conv1: nn.Module = convolution(config.stem())
        self.bn1 = norm(config.width, config)
        self.relu: nn.Module = nn.ReLU(inplace=True)
        for number, blocks in enumerate(config.stages(), start=1):
            self.add_module(f"layer{number}", nn.Sequential(*(Block(block, config) for block in blocks)))
        self.fc = nn.Linear(config.features, config.classes)

    def begin(self, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        images = batch["images"]
        x = images.contiguous(memory_format=torch.channels_last) if self.config.channels_last else images
        x = self.relu(self.bn1(self.conv1(x)))
        return {"x": x if self.config.small_images else F.max_pool2d(x, 3, stride=2, padding=1)}

    def units(self) -> list[str]:
        stages = (f"layer{number}" for number in range(1, 5))
        return [f"{stage}.{name}" for stage in stages for name, _ in self.get_submodule(stage).named_children()]

    def run(self, unit: str, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        return {"x": self.get_submodule(unit)(carry["x"])}

    def finish(self, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Tensor:
        logits: Tensor = self.fc(carry["x"].mean((2, 3)))
        labels = batch.get("labels")
        if labels is None:
            return logits
        smoothing = self.config.label_smoothing if self.training else 0.0
        return F.cross_entropy(widen(logits), labels, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)

    def initial(self, name: str) -> Initial:
        """Convolutions keep the variance of gradients (He); norms begin as the identity, or at zero; the rest too."""
        owner, _, kind = name.rpartition(".")
        module = self.get_submodule(owner)
        if isinstance(module, nn.Conv2d):
            return Initial(std=math.sqrt(2.0 / (module.out_channels * math.prod(module.kernel_size))))
        if isinstance(module, nn.Linear):
            return Initial(std=0.01) if kind == "weight" else Initial()
        last = f"bn{3 if self.config.depths.bottleneck else 2}"
        if kind == "weight" and self.config.zero_init_residual and owner.endswith(f".{last}"):
            return Initial()
        return Initial(constant=1.0 if kind in ("weight", "running_var") else 0.0)


def convolution(one: shape.Convolution) -> nn.Conv2d:
    return nn.Conv2d(
        one.inputs, one.outputs, one.kernel, one.stride, padding=one.kernel // 2, groups=one.groups, bias=False
    )


def norm(channels: int, config: ResNetConfig) -> nn.Module:
    if config.norm == "group":
        return nn.GroupNorm(config.norm_groups, channels)
    return BatchNorm(channels, synchronised=config.norm == "synchronised")
