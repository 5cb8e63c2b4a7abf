"""How long the processes of a pipeline compute, and how long they wait for each other."""

from __future__ import annotations

from paddock.training.callbacks import Callback
from paddock.training.run import TrainingRun


class PipelineTimes(Callback):
    """Adds the seconds of a step that the processes at each place of a pipeline compute, and that they wait for others
    and send to them, on average. Known where the host computes; a device's queue would have to be waited for."""

    def __init__(self) -> None:
        self._logged_step = 0

    def on_start(self, run: TrainingRun) -> None:
        self._logged_step = run.progress.step

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        if metrics is None:
            return
        steps, self._logged_step = run.progress.step - self._logged_step, run.progress.step
        busy = run.engine.take_busy_seconds()
        if busy is None or not run.world.adapter.computes_on_host:
            return
        everyone = [float(told) / steps for told in run.world.all_gather(repr(busy))]
        step_time = metrics.get("train.compute_time")
        if step_time is None:  # steps that only warm up
            return
        places = run.engine.mesh.layout.pipeline
        width = len(everyone) // places
        means = [sum(everyone[place * width : (place + 1) * width]) / width for place in range(places)]
        metrics |= {f"train.busy_time.{place}": mean for place, mean in enumerate(means)}
        metrics["train.wait_time"] = max(0.0, step_time - sum(means) / places)
