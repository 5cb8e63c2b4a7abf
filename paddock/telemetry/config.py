"""The `log:` part of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from paddock.schema import ConfigModel


class LogConfig(ConfigModel):
    """What is reported while a run is under way, and how often."""

    every: int = Field(default=10, gt=0)
    """steps between two records of the training metrics"""

    file: str | None = None
    """another copy of the run directory's log.txt, wherever you want it"""

    tensorboard: bool = False
    """also write event files for TensorBoard into the run directory (needs the `tensorboard` extra)"""

    track: Literal["trackio", "wandb", "swanlab", "mlflow"] | None = None
    """also hand all numbers to an experiment tracker whose package is installed: trackio (local, no account; the \
`track` extra), wandb (Weights & Biases), swanlab or mlflow"""

    project: str = "paddock"
    """what the tracker files the run under"""

    measure_peak: bool = False
    """measure a GEMM at the start, so that utilisation (MFU) is known on a device whose peak is not published, \
such as a CPU"""
