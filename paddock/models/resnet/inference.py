"""ResNet for inference alone: every norm folded into its convolution, and what follows a convolution done with it.

On a CPU the sum with the shortcut and the rectifier are part of torch's own fused convolution (oneDNN, which its
compiler uses, too), whose weights are laid out beforehand for the size of the images; elsewhere they come after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.devices import adapter_of
from paddock.models.layers.batch_norm import BatchNorm
from paddock.models.resnet.model import Block, ResNet

FUSED: Any = torch.ops.mkldnn


@dataclass(frozen=True)
class Geometry:
    """How a convolution moves over an image."""

    padding: list[int]
    stride: list[int]
    dilation: list[int]
    groups: int


class Convolution:
    """A convolution with its norm in it."""

    def __init__(self, convolution: nn.Conv2d, norm: BatchNorm) -> None:
        assert norm.running_mean is not None and norm.running_var is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        self.weight = (convolution.weight * scale.view(-1, 1, 1, 1)).contiguous(memory_format=torch.channels_last)
        self.bias = norm.bias - norm.running_mean * scale
        padding, stride, dilation = (list(map(int, name)) for name in _sizes(convolution))
        self.geometry = Geometry(padding, stride, dilation, convolution.groups)
        self._laid_out: dict[tuple[torch.Size, torch.dtype], Tensor] = {}

    def __call__(self, x: Tensor, beside: Tensor | None = None, rectify: bool = True) -> Tensor:
        """The rectified result, of which `beside` is a part."""
        if _has_fused(x):
            return self._fused(x, beside, "relu" if rectify else "none")
        geometry = self.geometry
        found = F.conv2d(
            x, self.weight, self.bias, geometry.stride, geometry.padding, geometry.dilation, geometry.groups
        )
        if beside is not None:
            found = found + beside
        return F.relu(found) if rectify else found

    def _fused(self, x: Tensor, beside: Tensor | None, after: str) -> Tensor:
        geometry = self.geometry
        place = (geometry.padding, geometry.stride, geometry.dilation, geometry.groups)
        weight = self._laid_out.get((x.shape, x.dtype))
        if weight is None:
            self._laid_out.clear()  # one size at a time: another one is for good, or the last batch of all
            weight = FUSED._reorder_convolution_weight(self.weight, *place, list(x.shape))
            self._laid_out[x.shape, x.dtype] = weight
        if beside is None:
            found: Tensor = FUSED._convolution_pointwise(x, weight, self.bias, *place, after, [], "")
        else:
            found = FUSED._convolution_pointwise.binary(
                x, beside, weight, self.bias, *place, "add", None, after, [], ""
            )
        return found


class FoldedResNet:
    """What a ResNet with batch norms computes in evaluation, from its weights as they are now."""

    def __init__(self, model: ResNet) -> None:
        assert isinstance(model.bn1, BatchNorm)
        self._pools = not model.config.small_images
        self._stem = Convolution(model.conv1, model.bn1)
        self._blocks = [_fold(block) for block in model.blocks()]

    def __call__(self, images: Tensor) -> Tensor:
        """What goes into the last layer, before the mean."""
        x = self._stem(images)
        if self._pools:
            x = F.max_pool2d(x, 3, stride=2, padding=1)
        for convolutions, shortcut in self._blocks:
            beside = x if shortcut is None else shortcut(x, rectify=False)
            for convolution in convolutions[:-1]:
                x = convolution(x)
            x = convolutions[-1](x, beside)
        return x


@torch.no_grad()
def accelerate(model: ResNet) -> None:
    """Let evaluations of the model as it is now go the short way. Training it afterwards would not change them."""
    if model.config.norm != "group":
        model.short_way = FoldedResNet(model)


def _has_fused(x: Tensor) -> bool:
    return adapter_of(x.device).computes_on_host and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()


def _fold(block: nn.Module) -> tuple[list[Convolution], Convolution | None]:
    assert isinstance(block, Block)
    pairs = [(getattr(block, f"conv{number}"), getattr(block, f"bn{number}")) for number in range(1, block.depth + 1)]
    shortcut = None
    if block.downsample is not None:
        shortcut = Convolution(*block.downsample.children())  # type: ignore[arg-type]
    return [Convolution(*pair) for pair in pairs], shortcut


def _sizes(convolution: nn.Conv2d) -> tuple[Any, Any, Any]:
    return convolution.padding, convolution.stride, convolution.dilation
