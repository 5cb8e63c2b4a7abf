"""How a job is laid out over processes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from paddock.schema import ConfigModel

ShardMode = Literal["none", "optimizer", "parameters"]
ScheduleName = Literal["gpipe", "1f1b", "interleaved", "looped-bfs", "zero-bubble", "zbv", "dualpipev"]
RecomputeMode = Literal["none", "selective", "full"]


class ParallelConfig(ConfigModel):
    """The layout: data × tensor × pipeline = number of processes."""

    data: Literal["auto"] | PositiveInt = "auto"
    """Data parallel size: replicas that share each global batch; auto is world ÷ (tensor × pipeline)."""
    tensor: int = Field(1, gt=0)
    """Tensor parallel size (model parallel): processes that share every layer."""
    pipeline: int = Field(1, gt=0)
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
