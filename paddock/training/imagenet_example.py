"""Going on with a training run of PyTorch's ImageNet example, from its `checkpoint.pth.tar`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.checkpoint.foreign.huggingface import load_weights
from paddock.checkpoint.foreign.imagenet_example import ImageNetExampleState, load_momentum, read_imagenet_example
from paddock.errors import ConfigError, bad_value
from paddock.training.run import Progress

if TYPE_CHECKING:
    from paddock.training.run import TrainingRun

MEASURE = "top1"


def resume_imagenet_example(path: Path, run: TrainingRun) -> tuple[Progress, str]:
    """Fill a run's models and optimizer, on all processes together; returns how far it is, and a description of it.

    The example stops between two epochs, and its optimizer decays norms and biases too, which is not taken over.
    """
    recipe, models = run.recipe, run.engine.models
    if recipe.optimizer.name != "sgd":
        raise bad_value(
            "optimizer.name",
            recipe.optimizer.name,
            f"{path} is to go on, and the ImageNet example trains with sgd",
            "set it to sgd, or take the weights alone: --pretrained instead of --resume",
        )
    for model in models:
        load_weights(model, path)
    state = read_imagenet_example(path, recipe.model)
    step = round(state.epochs * run.steps_per_epoch)  # as a schedule's epochs become steps
    if step >= run.total_steps:
        raise ConfigError(
            f"{path} has trained {state.epochs} epochs already",
            why=f"that is step {step}, and the run ends at step {run.total_steps}",
            fix="set --train.epochs (or --steps) to more, or take the weights alone: --pretrained instead of --resume",
        )
    load_momentum(state, models, run.optimizer)
    progress = Progress(step, step * run.batch.total, {MEASURE: state.best}, step)
    return progress, "; ".join([f"{path}, epoch {state.epochs}, step {step}", *_changes(state, run, step)])


def _changes(state: ImageNetExampleState, run: TrainingRun, step: int) -> list[str]:
    """Where this run's settings are others than those of the run in the file."""
    optimizer = run.recipe.optimizer
    ours = {
        "lr": run.learning_rate(step),
        "momentum": optimizer.momentum,
        "weight_decay": optimizer.weight_decay,
    }
    return [
        f"{name} {value:g}, where it had {state.settings[name]:g}"
        for name, value in ours.items()
        if not math.isclose(value, state.settings.get(name, value), rel_tol=1e-6)
    ]
