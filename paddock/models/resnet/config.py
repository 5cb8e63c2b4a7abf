"""The shape of a ResNet, counted exactly: every convolution is listed here, and the model is built from the list."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from paddock.errors import bad_value
from paddock.models.config import BEGIN, FINISH, MOST_CLASSES, ModelConfig, SampleShape, UnitCost

ArchName = Literal[
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "wide_resnet50_2",
    "wide_resnet101_2",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "resnext101_64x4d",
]

IMAGE_CHANNELS = 3
NARROWEST = 8
"""Channels of the stem, and the steps they come in. With fewer, oneDNN (in torch 2.13) writes past the end of memory in
the backward pass of a strided 1×1 convolution over channels that lie side by side."""
EXPANSION = 4
"""How much wider a bottleneck block ends than its stage is."""


@dataclass(frozen=True)
class Depths:
    """What a name stands for: blocks in each stage, whether they have a bottleneck, and its groups and width."""

    blocks: tuple[int, int, int, int]
    bottleneck: bool = True
    groups: int = 1
    group_width: int = 64
    """The bottleneck of the first stage is groups × group_width channels wide, for a stem of 64."""


ARCHITECTURES: dict[str, Depths] = {
    "resnet18": Depths((2, 2, 2, 2), bottleneck=False),
    "resnet34": Depths((3, 4, 6, 3), bottleneck=False),
    "resnet50": Depths((3, 4, 6, 3)),
    "resnet101": Depths((3, 4, 23, 3)),
    "resnet152": Depths((3, 8, 36, 3)),
    "wide_resnet50_2": Depths((3, 4, 6, 3), group_width=128),
    "wide_resnet101_2": Depths((3, 4, 23, 3), group_width=128),
    "resnext50_32x4d": Depths((3, 4, 6, 3), groups=32, group_width=4),
    "resnext101_32x8d": Depths((3, 4, 23, 3), groups=32, group_width=8),
    "resnext101_64x4d": Depths((3, 4, 23, 3), groups=64, group_width=4),
}


@dataclass(frozen=True)
class Convolution:
    """A convolution without a bias, padded so that a stride of 1 keeps the size; a norm follows it."""

    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def weights(self) -> int:
        return self.outputs * (self.inputs // self.groups) * self.kernel**2

    def size_after(self, size: int) -> int:
        return (size - 1) // self.stride + 1


@dataclass(frozen=True)
class Block:
    """A residual block: convolutions one after the other, and one beside them where the shape changes."""

    convolutions: tuple[Convolution, ...]
    shortcut: Convolution | None


class ResNetConfig(ModelConfig):
    """A residual network for images; ResNet, wide ResNet and ResNeXt are one module."""

    fields_without_shape: ClassVar = ("stride",)
    has_stages: ClassVar[bool] = False  # activations would have to travel channels-last

    family: Literal["resnet"] = "resnet"
    """The model family."""
    arch: ArchName = "resnet50"
    """Depth and form, by the public name."""
    classes: int = Field(1000, gt=0, le=MOST_CLASSES)
    """What images are told apart into."""
    stride: Literal["v1", "v1.5"] = "v1.5"
    """Where a bottleneck block halves the image: v1 in its first 1×1 convolution, v1.5 in the 3×3 (more accurate)."""
    width: int = Field(64, gt=0, le=16_384)
    """Channels of the stem, a multiple of 8; each stage doubles them. The public models have 64."""
    small_images: bool = False
    """A 3×3 stem that keeps the size, for images of 32 pixels or so; else 7×7 and a pooling, which quarter it."""
    norm: Literal["batch", "synchronised", "group"] = "batch"
    """batch: over a process's own samples; synchronised: over the samples of all data replicas; group: over parts of
    the channels of one image, the same in training and evaluation."""
    zero_init_residual: bool = False
    """Begin with residual branches that add nothing: the last norm of each block starts at zero."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """How much of each training label is spread evenly over all classes."""
    channels_last: bool = True
    """Compute with the channels of a pixel side by side, which is faster; weights and results are the same."""
    reset_head: bool = False
    """When weights for another number of classes are loaded, begin with a new last layer instead of an error."""

    @model_validator(mode="after")
    def _width_divides(self) -> ResNetConfig:
        unit = max(NARROWEST, 64 // math.gcd(64, self.depths.group_width))
        if self.width % unit:
            below = self.width // unit * unit
            fix = f"set --model.width {f'{below} or ' if below else ''}{below + unit}; the public models have 64"
            raise bad_value("model.width", self.width, f"{self.arch} takes multiples of {unit}", fix)
        if self.norm == "group" and self.width % self.norm_groups:
            raise bad_value("model.width", self.width, f"it does not divide into {self.norm_groups} norm groups")
        return self

    def task(self) -> str:
        return "image_classification"

    @property
    def depths(self) -> Depths:
        return ARCHITECTURES[self.arch]

    @property
    def norm_groups(self) -> int:
        """Groups of a group norm: the usual 32, fewer where there are not as many channels for each."""
        return min(32, max(1, self.width // 2))

    @property
    def features(self) -> int:
        """Channels that the last layer sees."""
        return self.width * 8 * (EXPANSION if self.depths.bottleneck else 1)

    def stem(self) -> Convolution:
        return Convolution(IMAGE_CHANNELS, self.width, *((3, 1) if self.small_images else (7, 2)))

    def bottleneck_width(self, stage: int) -> int:
        """Channels in the middle of a stage's blocks."""
        depths = self.depths
        if not depths.bottleneck:
            return self.width << stage
        return (self.width << stage) * depths.group_width // 64 * depths.groups

    def stages(self) -> list[list[Block]]:
        """Every block, by stage."""
        stages, channels = [], self.width
        for stage, count in enumerate(self.depths.blocks):
            blocks = []
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                block = self._block(stage, channels, stride)
                channels = block.convolutions[-1].outputs
                blocks.append(block)
            stages.append(blocks)
        return stages

    def _block(self, stage: int, inputs: int, stride: int) -> Block:
        middle, groups = self.bottleneck_width(stage), self.depths.groups
        if not self.depths.bottleneck:
            outputs = middle
            convolutions = [Convolution(inputs, middle, 3, stride), Convolution(middle, middle, 3)]
        else:
            outputs = (self.width << stage) * EXPANSION
            first, second = (stride, 1) if self.stride == "v1" else (1, stride)
            convolutions = [
                Convolution(inputs, middle, 1, first),
                Convolution(middle, middle, 3, second, groups),
                Convolution(middle, outputs, 1),
            ]
        changes = stride != 1 or inputs != outputs
        return Block(tuple(convolutions), Convolution(inputs, outputs, 1, stride) if changes else None)

    def num_classes(self) -> int:
        return self.classes

    def resets_head(self) -> bool:
        return self.reset_head

    def is_channels_last(self) -> bool:
        return self.channels_last

    def mixes_samples(self) -> bool:
        return self.norm == "batch"

    def units(self, shape: SampleShape, *, sequence: bool = False, recompute: bool = False) -> list[UnitCost]:
        """Two operations per multiply-add of the convolutions and the last layer."""
        stem = self.stem()
        size = stem.size_after(shape.source)
        places = [(stem, size)]
        if not self.small_images:
            size = (size - 1) // 2 + 1  # the pooling
        units = [self._cost(BEGIN, places, size, self.width)]
        for number, blocks in enumerate(self.stages(), start=1):
            for index, block in enumerate(blocks):
                places, before = [], size
                for one in block.convolutions:
                    size = one.size_after(size)
                    places.append((one, size))
                if block.shortcut is not None:
                    places.append((block.shortcut, block.shortcut.size_after(before)))
                units.append(self._cost(f"layer{number}.{index}", places, size, block.convolutions[-1].outputs))
        head = self.features * self.classes
        return [*units, UnitCost(FINISH, head + self.classes, 2.0 * head, self.features + self.classes)]

    @staticmethod
    def _cost(name: str, places: list[tuple[Convolution, int]], size: int, channels: int) -> UnitCost:
        """Of convolutions, each with the size of the image that it puts out, and a norm behind each."""
        return UnitCost(
            name,
            parameters=sum(one.weights + 2 * one.outputs for one, _ in places),
            flops=2.0 * sum(one.weights * place**2 for one, place in places),
            saved=sum(2 * one.outputs * place**2 for one, place in places),  # what a norm and a rectifier put out
            output=channels * size**2,
        )
