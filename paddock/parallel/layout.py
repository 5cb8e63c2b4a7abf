"""The layout as numbers: how many replicas, tensor shards and pipeline stages a world is made of."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.errors import bad_value
from paddock.parallel.config import ParallelConfig


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


def derive_layout(config: ParallelConfig, world: int) -> Layout:
    """Fill in `data: auto` and check that the product is the number of processes."""
    inner = config.tensor * config.pipeline
    if world % inner:
        raise bad_value(
            "parallel.tensor × parallel.pipeline",
            f"{config.tensor} × {config.pipeline} = {inner}",
            f"{world} process{'es do' if world > 1 else ' does'} not divide by {inner}",
            f"start a multiple of {inner} processes (--nproc-per-node), or choose tensor × pipeline from "
            + ", ".join(str(size) for size in range(1, world + 1) if world % size == 0),
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
