"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math
from typing import Literal

from paddock.training.config import ScheduleConfig


def warmup_steps(config: ScheduleConfig, decay_steps: int) -> int:
    """The warm-up in steps: a value below 1 is a fraction of the decay."""
    return int(config.warmup * decay_steps) if config.warmup < 1 else int(config.warmup)


def in_steps(config: ScheduleConfig, steps_per_epoch: float) -> ScheduleConfig:
    """The same schedule, counted in steps."""
    if config.unit == "steps":
        return config

    def steps(epochs: float | None) -> int | None:
        return None if epochs is None else max(1, round(epochs * steps_per_epoch))

    warmup = config.warmup if config.warmup < 1 else steps(config.warmup)
    changes = {"decay_steps": steps(config.decay_steps), "step_size": steps(config.step_size), "warmup": warmup}
    changes["hold"] = steps(config.hold)
    return config.model_copy(update={"unit": "steps", **changes})


def period(every: int | Literal["epoch"] | None, steps_per_epoch: float) -> int | None:
    """Steps between two of what happens so often."""
    return max(1, math.ceil(steps_per_epoch)) if every == "epoch" else every


def learning_rate(config: ScheduleConfig, peak: float, step: int, total_steps: int) -> float:
    """The rate of optimizer step `step` (the first is 0) in a run of `total_steps`."""
    assert config.unit == "steps"
    end = config.decay_steps or total_steps
    warmup = warmup_steps(config, end)
    if step < warmup:
        return peak * (step + 1) / warmup
    if config.name == "constant":
        return peak
    if config.name == "step":
        assert config.step_size is not None
        return max(config.min_lr, peak * config.factor ** (step // config.step_size))
    if config.name == "inverse_sqrt":
        hold = config.hold or warmup
        return max(config.min_lr, peak * math.sqrt(hold / max(hold, step + 1)))
    progress = min(1.0, (step - warmup) / max(1, end - warmup))
    shape = {
        "linear": lambda: 1.0 - progress,
        "cosine": lambda: 0.5 * (1.0 + math.cos(math.pi * progress)),
        "polynomial": lambda: (1.0 - progress) ** config.power,
    }[config.name]()
    return config.min_lr + (peak - config.min_lr) * shape
