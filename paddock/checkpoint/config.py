"""When checkpoints are written, how many stay, and where a run begins."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from paddock.errors import bad_value
from paddock.schema import ConfigModel

FOLDER = "checkpoints"
"""Where a run directory keeps them."""


class CheckpointConfig(ConfigModel):
    """Checkpoints; one is always written at the end of a run, when it is stopped, and after each evaluation that is
    the best so far (checkpoints/best), the first one included."""

    every: PositiveInt | Literal["epoch"] | None = 1000
    """Steps between checkpoints, or epoch; None is only at the end. The best model is saved when it is found, whatever
    this says: a run that gets better at every evaluation saves at every evaluation, so evaluate.every limits it."""
    keep: int | None = Field(3, gt=0)
    """How many to keep, the newest, beside the best one, which always stays; None keeps all."""
    asynchronous: bool = False
    """Asynchronous checkpointing: let training go on while a checkpoint is written, from a copy that takes the memory
    of what is saved."""
    load: str | None = None
    """auto: continue this run directory, if it has a checkpoint; a run or checkpoint directory: continue from
    there (weights, optimizer, schedule, data position) or, where it was trained for another task, start from the
    weights that both have; a Hugging Face folder or, for a ResNet, a file of weights (.safetensors, .pth, .pth.tar):
    start from its weights."""
    weights_only: bool = False
    """Take nothing but the weights of what is loaded, and begin at the first step. With load = auto a run that goes on
    takes all, as ever."""
    resume: bool = False
    """Go on also where a file, a checkpoint.pth.tar of the ImageNet example, stopped: its epoch, its momentum, its best
    accuracy. Without it a file gives its weights only; runs and checkpoints go on by themselves."""

    allow_changes: bool = False
    """Go on also where the seed, the training data or the length of its samples are others than those of the
    checkpoint. The position in the data is kept as a number: under another order some samples repeat, and some are left
    out."""

    @model_validator(mode="after")
    def _loads_something(self) -> CheckpointConfig:
        if self.weights_only and self.load is None:
            raise bad_value(
                "checkpoint.weights_only",
                "true",
                "checkpoint.load names no weights to begin with",
                "set --checkpoint.load RUN, CHECKPOINT, FOLDER or FILE, or leave it out",
            )
        if self.resume and (self.load is None or self.weights_only):
            why = (
                "checkpoint.load names nothing to go on from" if self.load is None else "checkpoint.weights_only is set"
            )
            raise bad_value("checkpoint.resume", "true", why, "set --checkpoint.load FILE alone, or leave it out")
        return self
