"""Going on with a training run of PyTorch's ImageNet example, from its `checkpoint.pth.tar`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from paddock.checkpoint.huggingface import load_weights
from paddock.checkpoint.imagenet_example import ImageNetExampleState, load_momentum, read_imagenet_example
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, bad_value
from paddock.training.loop import LoopSettings, Progress
from paddock.training.schedule import learning_rate

MEASURE = "top1"


def resume_imagenet_example(
    path: Path,
    recipe: Recipe,
    settings: LoopSettings,
    steps_per_epoch: float,
    models: Sequence[nn.Module],
    optimizer: Optimizer,
) -> tuple[Progress, str]:
    """Fill models and optimizer, on all processes together; returns how far the run is, and a description of it.

    The example stops between two epochs, and its optimizer decays norms and biases too, which is not taken over.
    """
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
    step = round(state.epochs * steps_per_epoch)  # as a schedule's epochs become steps
    if step >= settings.total_steps:
        raise ConfigError(
            f"{path} has trained {state.epochs} epochs already",
            why=f"that is step {step}, and the run ends at step {settings.total_steps}",
            fix="set --train.epochs (or --steps) to more, or take the weights alone: --pretrained instead of --resume",
        )
    load_momentum(state, models, optimizer)
    progress = Progress(step, step * settings.batch.total, {MEASURE: state.best}, step)
    return progress, "; ".join([f"{path}, epoch {state.epochs}, step {step}", *_changes(state, settings, step)])


def _changes(state: ImageNetExampleState, settings: LoopSettings, step: int) -> list[str]:
    """Where this run's settings are others than those of the run in the file."""
    ours = {
        "lr": learning_rate(settings.schedule, settings.optimizer.lr, step, settings.total_steps),
        "momentum": settings.optimizer.momentum,
        "weight_decay": settings.optimizer.weight_decay,
    }
    return [
        f"{name} {value:g}, where it had {state.settings[name]:g}"
        for name, value in ours.items()
        if not math.isclose(value, state.settings.get(name, value), rel_tol=1e-6)
    ]
