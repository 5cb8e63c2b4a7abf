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
    """Replicas that share each global batch; auto is world ÷ (tensor × pipeline)."""
    tensor: int = Field(1, gt=0)
    """Processes that share every layer."""
    pipeline: int = Field(1, gt=0)
    """Processes that the layers are cut over, as stages."""
    schedule: ScheduleName = "1f1b"
    """The order in which stages work on micro-batches. interleaved, looped-bfs and zero-bubble give each process two
    stages or more, in a loop; zbv and dualpipev two, in a V."""
    stages: Literal["auto"] | tuple[int, ...] = "auto"
    """The stage of every layer, such as 0,0,0,1,1,1; auto balances them by cost."""
    shard: ShardMode = "none"
    """What the data replicas share instead of each holding it whole: nothing; gradients and optimizer state; or the
    parameters too."""
    sequence: bool = False
    """Share the activations between tensor-parallel parts over the tensor processes too, cut along the sequence."""
    recompute: RecomputeMode = "none"
    """What the backward pass computes again instead of keeping it: nothing; attention and activation functions; or
    all of each block but its input."""
