"""Whether and how a model is compiled: each block by itself, so that one compilation serves all layers."""

from __future__ import annotations

import shutil
from typing import Literal

from torch import nn

from paddock.devices import DeviceAdapter
from paddock.errors import MachineError

SMALLEST = 50_000_000
"""Parameters from which the seconds of compiling are worth it, for `auto`."""


def compile_blocks(
    model: nn.Module, blocks: list[nn.Module], mode: Literal["auto", "on", "off"], adapter: DeviceAdapter
) -> bool:
    """Compile each block in place, as `mode` says; returns whether it did. The work happens in the first step."""
    compiler = find_compiler(adapter)
    if mode == "on" and compiler is None:
        raise MachineError(
            "train.compile = on needs a C++ compiler on a CPU",
            why="neither g++ nor clang++ is on the PATH",
            fix="install one, or set --train.compile off",
        )
    large = sum(parameter.numel() for parameter in model.parameters()) >= SMALLEST
    if mode == "off" or (mode == "auto" and not (compiler and large)):
        return False
    for block in blocks:
        block.compile()
    return True


def find_compiler(adapter: DeviceAdapter) -> str | None:
    """What turns compiled graphs into machine code: on a CPU a C++ compiler, elsewhere the vendor's own."""
    if adapter.torch_type != "cpu":
        return adapter.name
    return shutil.which("g++") or shutil.which("clang++")
