"""How a job is laid out over processes: what a recipe says of it, and the numbers that follow for a world."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from paddock.errors import bad_value
from paddock.process import MOST_PROCESSES
from paddock.schema import ConfigModel

ShardMode = Literal["none", "optimizer", "parameters"]
ScheduleName = Literal["gpipe", "1f1b", "interleaved", "looped-bfs", "zero-bubble", "zbv", "dualpipev"]
RecomputeMode = Literal["none", "selective", "full"]


class ParallelConfig(ConfigModel):
    """The layout: data × tensor × pipeline = number of processes."""

    data: Literal["auto"] | Annotated[int, Field(gt=0, le=MOST_PROCESSES)] = "auto"
    """Data parallel size: replicas that share each global batch; auto is world ÷ (tensor × pipeline)."""
    tensor: int = Field(1, gt=0, le=MOST_PROCESSES)
    """Tensor parallel size (model parallel): processes that share every layer."""
    pipeline: int = Field(1, gt=0, le=MOST_PROCESSES)
    """Pipeline parallel size (model parallel): processes that the layers are cut over, as stages."""
    schedule: ScheduleName = "1f1b"
    """Pipeline schedule (GPipe, 1F1B, …): the order in which stages work on micro-batches. interleaved, looped-bfs and
    zero-bubble give each process two stages or more, in a loop (virtual stages); zbv and dualpipev two, in a V."""
    stages: Literal["auto"] | tuple[int, ...] = "auto"
    """The stage of every layer, such as 0,0,0,1,1,1; auto balances them by cost."""
    shard: ShardMode = "none"
    """ZeRO, FSDP: what the data replicas share instead of each holding it whole: none; optimizer (ZeRO-1/2): gradients
    and optimizer state; parameters (ZeRO-3, FSDP's full shard): the parameters too."""
    sequence: bool = False
    """Sequence parallel: share the activations between tensor-parallel parts over the tensor processes too, cut along
    the sequence."""
    recompute: RecomputeMode = "none"
    """Activation checkpointing (gradient checkpointing): what the backward pass computes again instead of keeping it:
    none; selective: attention and activation functions; full: all of each block but its input."""


@dataclass(frozen=True)
class Layout:
    """data × tensor × pipeline processes."""

    data: int
    tensor: int
    pipeline: int

    @property
    def world(self) -> int:
        return self.data * self.tensor * self.pipeline

    def __str__(self) -> str:
        return f"data {self.data} × tensor {self.tensor} × pipeline {self.pipeline}"


def divisors(value: int) -> list[int]:
    """The whole numbers that a positive one divides by, in order."""
    low = [number for number in range(1, math.isqrt(value) + 1) if value % number == 0]
    return low + [value // number for number in reversed(low) if number * number < value]


def derive_layout(config: ParallelConfig, world: int) -> Layout:
    """Fill in `data: auto` and check that the product is the number of processes."""
    inner = config.tensor * config.pipeline
    if world % inner:
        raise bad_value(
            "parallel.tensor × parallel.pipeline",
            f"{config.tensor} × {config.pipeline} = {inner}",
            f"{world} process{'es do' if world > 1 else ' does'} not divide by {inner}",
            f"start a multiple of {inner} processes (--nproc-per-node), or choose tensor × pipeline from "
            + ", ".join(map(str, divisors(world))),
        )
    data = world // inner if config.data == "auto" else config.data
    if data * inner != world:
        raise bad_value(
            "parallel.data",
            data,
            f"data {data} × tensor {config.tensor} × pipeline {config.pipeline} = {data * inner} processes, "
            f"but {world} are started",
            f"set --parallel.data {world // inner} or auto, or start --nproc-per-node {data * inner}",
        )
    return Layout(data, config.tensor, config.pipeline)
