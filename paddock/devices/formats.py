"""Weights in eight bits on a CPU, for a model that writes: a row of a weight is whole numbers and one factor.

Reading the weights is what takes the time when a few sequences are written, so a quarter of the bytes is nearly four
times the speed. `Int8Weight` keeps what it is multiplied by in bfloat16; `DynamicInt8Weight` rounds that to seven bits
for every product. In both, what a row gives does not depend on the rows beside it.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

LARGEST = 127
STEPS = 63
"""On each side of nothing: seven bits, where the processor adds up products in sixteen. Eight would overflow them."""
WITH_GIVEN_SCALE = ("x86", "fbgemm")
"""torch's engines for such products that can be told the scale."""


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
    """A weight [outputs, inputs] that is multiplied by numbers that are rounded for it, each row by a scale of its own.

    torch has one scale for a whole product, so that a large number would make all rows coarse; here every row is made
    to reach 1 before, and the scale is always the same.
    """

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
        rows = x.reshape(-1, x.shape[-1]).float()
        largest = rows.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        if torch.backends.quantized.engine in WITH_GIVEN_SCALE:
            product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
            found = product(rows / largest, 1 / STEPS, STEPS + 1, self._packed)
        else:  # the scale is looked for among the rows: one more has the largest that there can be
            ends = torch.eye(2, rows.shape[1])
            whole = torch.cat([rows / largest, ends[:1] - ends[1:]])
            found = torch.ops.quantized.linear_dynamic(whole, self._packed, reduce_range=True)[:-1]
        return _shaped(found * largest, x, bias)


def _scales(weight: Tensor) -> Tensor:
    """What each row's whole numbers are multiplied by; a row of zeros has some scale, too."""
    return weight.float().abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny * LARGEST) / LARGEST


def _shaped(found: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
    found = found.to(x.dtype).reshape(*x.shape[:-1], found.shape[-1])
    return found if bias is None else found + bias
