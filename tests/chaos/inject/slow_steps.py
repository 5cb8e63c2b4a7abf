"""A callback that lets every step take a while, so that machines can come and go meanwhile."""

from __future__ import annotations

import time

from paddock.training.callbacks import Callback, register_callback
from paddock.training.run import TrainingRun

SECONDS = 0.5


@register_callback
class SlowSteps(Callback):
    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        time.sleep(SECONDS)
