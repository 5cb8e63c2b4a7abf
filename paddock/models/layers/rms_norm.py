"""Root-mean-square norm: a layer norm without a mean, and without a bias.

torch's own is made of six passes over its input; on a CPU they take five times as long as a whole layer norm. So the
backward pass here is a layer norm's with a mean of zero, and what that subtracts for the mean is added again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from paddock.models.layers.basic import widen


class RMSNorm(nn.Module):
    """Every vector divided by the root of the mean of its squares, in float32 whatever its type, times a weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = _RMSNorm.apply(widen(x), widen(self.weight), self.eps)
        if x.dtype is found.dtype or torch.is_autocast_enabled(x.device.type):  # whoever needs few bits casts it then
            return found
        return found.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = norm.square().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse = ctx.saved_tensors
        width = x.shape[-1]
        for_x, for_weight, _ = torch.ops.aten.native_layer_norm_backward(
            gradient, x, [width], torch.zeros_like(inverse), inverse, weight, None, [True, True, False]
        )
        subtracted = (gradient @ weight).unsqueeze(-1) / width
        return for_x + inverse * subtracted, for_weight, None
