"""How long a run took to be back at work after a fault."""

from __future__ import annotations

import time

from paddock.training.callbacks import Callback
from paddock.training.run import TrainingRun


class Recovery(Callback):
    """Adds to the first step that is logged after a restart the seconds from the end of the attempt before it, as the
    launcher saw that, to the end of the first step of this one."""

    def __init__(self, seen: float) -> None:
        self._seen, self._seconds = seen, 0.0

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        if self._seen:
            self._seconds, self._seen = time.time() - self._seen, 0.0
        if self._seconds and metrics is not None:
            metrics["train.recovery_time"], self._seconds = self._seconds, 0.0
