"""Mixed precision on the device: which operators get fewer bits, and which get all of them.

torch casts for the devices that it knows. A vendor registers casts of its own, and these are torch's, for the operators
that models use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from paddock.testing.simulated.device import SimulatedDevice

FEWER_BITS = (
    *("_convolution", "conv1d", "conv2d", "conv3d", "convolution", "addmm", "addmv", "matmul", "mm", "mv", "linear"),
    *("addbmm", "baddbmm", "bmm", "scaled_dot_product_attention"),
)
ALL_BITS = (
    *("exp", "log", "log2", "log1p", "rsqrt", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "layer_norm"),
    *("native_layer_norm", "group_norm", "nll_loss", "logsumexp", "softmax.int", "log_softmax.int", "cumsum"),
    *("linalg_vector_norm", "sum", "sum.dim_IntList", "prod"),
)
WIDEST_OF_ALL = ("addcdiv", "addcmul", "index_put", "scatter_add", "dot")
"""Operators that compute in the widest type of what they are given."""
KEY = "AutocastPrivateUse1"


def register(device: SimulatedDevice) -> list[torch.library.Library]:
    """Cast for as long as what is returned lives."""
    library, others = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, KEY)  # whatever has no cast is called as it is

    def add(name: str, choose: Callable[[list[Tensor]], torch.dtype]) -> None:
        packet, _, kind = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), kind or "default")
        library.impl(name, _casting(operator, choose, device.name), KEY)

    for name in FEWER_BITS:
        add(name, lambda tensors: torch.get_autocast_dtype(device.name))
    for name in ALL_BITS:
        add(name, lambda tensors: torch.float32)
    for name in WIDEST_OF_ALL:
        add(name, _widest)
    return [library, others]


def _casting(operator: Any, choose: Callable[[list[Tensor]], torch.dtype], device_type: str) -> Callable[..., Any]:
    def casts(value: Any) -> bool:
        is_number = isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64
        return is_number and value.device.type == device_type

    def cast(value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, list | tuple):
            return [cast(one, dtype) for one in value]
        return value.to(dtype) if casts(value) else value

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type, enabled=False):
            tensors = [value for value in args if casts(value)]
            dtype = choose(tensors) if tensors else torch.float32
            return operator(*(cast(value, dtype) for value in args), **kwargs)

    return kernel


def _widest(tensors: list[Tensor]) -> torch.dtype:
    return max((tensor.dtype for tensor in tensors), key=lambda dtype: dtype.itemsize)
