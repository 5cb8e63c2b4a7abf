"""ResNet for inference alone: every norm folded into its convolution, and what follows a convolution done with it.

The model keeps its one forward pass: folded layers take the place of its convolutions and blocks.

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


class FoldedConvolution(nn.Module):
    """A convolution with its norm in it, rectified."""

    def __init__(self, convolution: nn.Conv2d, norm: BatchNorm) -> None:
        super().__init__()
        assert norm.running_mean is not None and norm.running_var is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        self.weight = (convolution.weight * scale.view(-1, 1, 1, 1)).contiguous(memory_format=torch.channels_last)
        self.bias = norm.bias - norm.running_mean * scale
        padding, stride, dilation = (list(map(int, name)) for name in _sizes(convolution))
        self.geometry = Geometry(padding, stride, dilation, convolution.groups)
        self._laid_out: dict[tuple[torch.Size, torch.dtype], Tensor] = {}

    def forward(self, x: Tensor, beside: Tensor | None = None, rectify: bool = True) -> Tensor:
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


class FoldedBlock(nn.Module):
    """A block whose convolutions have their norms in them; the last one adds the shortcut."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        pairs = [(getattr(block, f"conv{place}"), getattr(block, f"bn{place}")) for place in range(1, block.depth + 1)]
        self.convolutions = nn.ModuleList(FoldedConvolution(*pair) for pair in pairs)
        self.shortcut: FoldedConvolution | None = None
        if block.downsample is not None:
            self.shortcut = FoldedConvolution(*block.downsample.children())  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        beside = x if self.shortcut is None else self.shortcut(x, rectify=False)
        *first, last = self.convolutions
        for convolution in first:
            x = convolution(x)
        folded: Tensor = last(x, beside)
        return folded


@torch.no_grad()
def fold_norms(model: ResNet) -> None:
    """Make a model with its final weights one for inference alone; its numbers stay the same but for rounding."""
    if model.config.norm == "group":
        return
    assert isinstance(model.bn1, BatchNorm) and isinstance(model.conv1, nn.Conv2d)
    model.conv1 = FoldedConvolution(model.conv1, model.bn1)
    model.bn1, model.relu = nn.Identity(), nn.Identity()
    for unit in model.units():
        block = model.get_submodule(unit)
        assert isinstance(block, Block)
        model.set_submodule(unit, FoldedBlock(block))


def _has_fused(x: Tensor) -> bool:
    return adapter_of(x.device).computes_on_host and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()


def _sizes(convolution: nn.Conv2d) -> tuple[Any, Any, Any]:
    return convolution.padding, convolution.stride, convolution.dilation
