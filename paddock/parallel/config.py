"""How a job is laid out over processes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from paddock.schema import ConfigModel


class ParallelConfig(ConfigModel):
    """The layout: data × tensor × pipeline = number of processes."""

    data: Literal["auto"] | PositiveInt = "auto"
    """Replicas that share each global batch; auto is world ÷ (tensor × pipeline)."""
    tensor: int = Field(1, gt=0)
    """Processes that share every layer."""
    pipeline: int = Field(1, gt=0)
    """Stages that the layers are cut into."""
    recompute: Literal["none", "full"] = "none"
    """full: keep only each block's input and compute the rest again in the backward pass, to save memory."""
