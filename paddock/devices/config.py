"""The `device` section of a recipe: how the device computes, where there is a choice."""

from __future__ import annotations

from typing import Literal

from paddock.schema import ConfigModel

CompressedFormat = Literal["int8", "int8-dynamic"]
"""Weights in eight bits, multiplied by numbers in bfloat16; or by numbers that are rounded to eight bits, too."""
WeightFormat = Literal["float32", "bfloat16", CompressedFormat]
"""What a model that writes has its weights in."""
ProductsSetting = Literal["auto", "mkl", "onednn"]
FallbackSetting = Literal["cpu", "error"]


class DeviceConfig(ConfigModel):
    """How the device computes, where there is a choice."""

    products: ProductsSetting = "auto"
    """Which library multiplies matrices (GEMM) on a CPU: `mkl` is torch's own choice, `onednn` the other one that it
    carries, and `auto` takes for every kind of product the one that was faster when it was measured on this machine,
    once. A run keeps the choice it began with."""
    fallback: FallbackSetting = "cpu"
    """What becomes of operators that an accelerator has no kernel for: `cpu` computes them on the host, and the end of
    the run lists them with their calls and seconds; `error` stops at the first."""
