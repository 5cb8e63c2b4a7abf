"""Weights in eight bits on a CPU, for a model that writes: a row of a weight is whole numbers and one factor.

Reading the weights is what takes the time when a few sequences are written, so a quarter of the bytes is nearly four
times the speed. `Int8Weight` keeps what it is multiplied by in bfloat16; `DynamicInt8Weight` rounds that to eight bits,
too, anew for every product.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

LARGEST = 127


class Int8Weight:
    """A weight [outputs, inputs] that is multiplied by numbers in bfloat16."""

    def __init__(self, weight: Tensor) -> None:
        scales = _scales(weight)
        self._values = (weight.float() / scales.unsqueeze(1)).round().clamp(-LARGEST, LARGEST).to(torch.int8)
        self._scales = scales.to(torch.bfloat16)
        self.num_bytes = self._values.nbytes + self._scales.nbytes

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [..., inputs] times the weight, which no gradient flows through."""
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16).contiguous()
        found: Tensor = torch.ops.aten._weight_int8pack_mm(rows, self._values, self._scales)
        return _shaped(found, x, bias)


class DynamicInt8Weight:
    """A weight [outputs, inputs] that is multiplied by numbers which are rounded to eight bits for it."""

    def __init__(self, weight: Tensor) -> None:
        zeros = torch.zeros(len(weight), dtype=torch.int64)
        with warnings.catch_warnings():
            # torch means to take these tensors out. The products that would replace them (onednn.qlinear_pointwise)
            # were no faster than float32 when they were tried.
            warnings.filterwarnings("ignore", message="(?s).*quantized tensor creation functions")
            values = torch.quantize_per_channel(weight.float(), _scales(weight), zeros, axis=0, dtype=torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(values, None)
        self.num_bytes = weight.numel() + 8 * len(weight)  # a byte each, and of every row a scale and a sum

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [..., inputs] times the weight, which no gradient flows through."""
        # Seven bits of x where the processor adds up products in sixteen: eight would overflow them.
        found = torch.ops.quantized.linear_dynamic(x.float(), self._packed, reduce_range=True)
        return _shaped(found, x, bias)


def _scales(weight: Tensor) -> Tensor:
    """What each row's whole numbers are multiplied by; a row of zeros has some scale, too."""
    return weight.float().abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny * LARGEST) / LARGEST


def _shaped(found: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    found = found.to(x.dtype).reshape(*x.shape[:-1], found.shape[-1])
    return found if bias is None else found + bias
