"""When checkpoints are written, how many stay, and where a run begins."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from paddock.schema import ConfigModel

FOLDER = "checkpoints"
"""Where a run directory keeps them."""


class CheckpointConfig(ConfigModel):
    """Checkpoints; one is always written at the end of a run, and when it is stopped."""

    every: PositiveInt | Literal["epoch"] | None = 1000
    """Steps between checkpoints, or epoch; None is only at the end."""
    keep: int | None = Field(3, gt=0)
    """How many to keep, the newest; the best one always stays; None keeps all."""
    asynchronous: bool = False
    """Let training go on while a checkpoint is written, from a copy that takes the memory of what is saved."""
    load: str | None = None
    """auto: continue this run directory, if it has a checkpoint; a run or checkpoint directory: continue from
    there (weights, optimizer, schedule, data position); a Hugging Face folder: start from its weights."""
