"""What somebody should know before a run takes hours: nothing that stops it, but a disk without room for a
checkpoint."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.checkpoint.config import FOLDER
from paddock.devices.adapter import DeviceAdapter
from paddock.errors import MachineError
from paddock.telemetry.format import bytes_
from paddock.training.config import OptimizerConfig
from paddock.training.optimization.schedule import in_steps, period, warmup_steps

if TYPE_CHECKING:
    from paddock.config.recipe import Recipe

FLOAT32 = 4


@dataclass(frozen=True)
class Plan:
    """What is known of a run before it begins."""

    recipe: Recipe
    run_dir: Path
    begun_step: int
    total_steps: int
    steps_per_epoch: float
    held_out: int | None
    """Validation samples; None where nothing is evaluated."""

    def concerns(self, adapter: DeviceAdapter) -> Iterator[str]:
        """Each in a sentence; an error, if not even one checkpoint could be written."""
        yield from self._schedule()
        yield from self._precision(adapter)
        yield from self._validation()
        yield from self._disk()

    def _schedule(self) -> Iterator[str]:
        schedule = in_steps(self.recipe.schedule, self.steps_per_epoch)
        warmup = warmup_steps(schedule, schedule.decay_steps or self.total_steps)
        if warmup > self.total_steps:
            peak = self.recipe.optimizer.lr
            reached = peak * self.total_steps / warmup
            yield (
                f"the learning rate warms up for {warmup} steps, and the run ends at step {self.total_steps}: it comes "
                f"to {reached:.2e} of {peak:.2e}; set --schedule.warmup to less"
            )

    def _precision(self, adapter: DeviceAdapter) -> Iterator[str]:
        compute = self.recipe.precision.compute
        if adapter.has_instructions_for(compute) is False:
            expected = adapter.slow_types.get(compute, "slower than float32")
            yield (
                f"{adapter.device_name()} has no {compute} instructions: expect it to be {expected}; "
                "set --precision.compute float32"
            )

    def _validation(self) -> Iterator[str]:
        if self.held_out == 1:
            yield (
                "the validation part is one sample: its loss says little, and so does the best checkpoint, which goes "
                "by it; give validation more of the data, or --evaluate.every None"
            )

    def disk(self) -> str:
        """What the checkpoints take, and what there is."""
        size, most = checkpoint_bytes(self.recipe), self._checkpoints()
        several = f", at most {most} at once: {bytes_(most * size)}" if most > 1 else ""
        return f"{bytes_(size)} a checkpoint{several}; {bytes_(self._free())} free"

    def _free(self) -> int:
        return shutil.disk_usage(_existing(self.run_dir)).free

    def _disk(self) -> Iterator[str]:
        size, free = checkpoint_bytes(self.recipe), self._free()
        there = sum(1 for _ in (self.run_dir / FOLDER).glob("step-*"))
        most = max(self._checkpoints() - there, 1)
        if size > free:
            raise MachineError(
                f"there is no room for a checkpoint in {self.run_dir}",
                why=f"one takes {bytes_(size)}, and {bytes_(free)} are free",
                fix="free some, or choose another disk: --run-dir",
            )
        if most * size > free:
            keep = self.recipe.checkpoint.keep
            kept = "all are kept" if keep is None else f"the newest {keep} are kept, and the best"
            yield (
                f"the disk of {self.run_dir} will not hold the checkpoints: up to {most} of {bytes_(size)} ({kept}), "
                f"and {bytes_(free)} are free; set --checkpoint.keep to less, or choose another --run-dir"
            )

    def _checkpoints(self) -> int:
        """How many there may be at once: those that are kept, the best, and the one that is being written."""
        recipe = self.recipe
        wanted = [period(each, self.steps_per_epoch) for each in (recipe.checkpoint.every, recipe.evaluate.every)]
        periods = [each for each in wanted if each is not None]
        saved = sum(map(self._steps_at, periods)) - (self._steps_at(math.lcm(*periods)) if len(periods) > 1 else 0)
        saved += all(self.total_steps % each for each in periods)  # the last step always is
        return saved if recipe.checkpoint.keep is None else min(saved, recipe.checkpoint.keep + 2)

    def _steps_at(self, every: int) -> int:
        return self.total_steps // every - self.begun_step // every


def checkpoint_bytes(recipe: Recipe) -> int:
    """The size of a checkpoint: weights, what the optimizer keeps of them, and their average."""
    copies = 1 + _kept_of_each(recipe.optimizer) + (recipe.train.ema is not None)
    return math.ceil(copies * recipe.model.num_parameters() * FLOAT32)


def _kept_of_each(optimizer: OptimizerConfig) -> int:
    """Numbers that an optimizer keeps of a parameter's; Adafactor keeps so few that they do not count."""
    return {"adamw": 2, "adam": 2, "sgd": 1 if optimizer.momentum else 0, "adafactor": 0}[optimizer.name]


def _existing(path: Path) -> Path:
    """The nearest folder that is there."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if os.path.isdir(folder))
