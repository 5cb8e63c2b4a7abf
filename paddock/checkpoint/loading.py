"""A checkpoint of a whole model into the pieces of it that one process holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn
from torch.optim import Optimizer

from paddock.checkpoint.storage import read_tensors, saved_tensors
from paddock.checkpoint.tensors import (
    AVERAGE,
    MODEL,
    copy_to_twins,
    give_to_optimizer,
    prefix_of_weights,
    room_for_optimizer,
    tensors_of,
)
from paddock.models.config import ModelConfig
from paddock.models.registry import huggingface_of, parameter_names


def load_models(
    path: Path,
    models: Sequence[nn.Module],
    optimizer: Optimizer | None = None,
    average: Mapping[str, Tensor] | None = None,
    leave: Collection[str] = (),
) -> bool:
    """Fill the models, whatever layout wrote the checkpoint: with an optimizer, to go on training, which gets its
    state, too; without one, to use them, and then with the average of the weights, where the run kept one.

    Called by all processes together. Each reads what it holds, straight into place. Returns whether `average`, which
    training goes on with, was there to be filled. Parameters named in `leave` stay as they are.
    """
    config = models[0].config
    assert isinstance(config, ModelConfig)
    saved = saved_tensors(path)
    state = {} if optimizer is None else room_for_optimizer(saved, models)
    names = set(parameter_names(config))
    prefix = prefix_of_weights(saved) if optimizer is None else MODEL
    has_average = average is not None and prefix_of_weights(saved) == AVERAGE
    weights = tensors_of(models, None, prefix)
    for name in leave:
        weights.pop(prefix + name, None)
    wanted = {**weights, **state, **(average if average and has_average else {})}
    elsewhere = {name for name in saved if not name.startswith(prefix) or name.removeprefix(prefix) in names}
    read_tensors(path, wanted, elsewhere)
    copy_to_twins(models)
    if optimizer is not None:
        give_to_optimizer(state, models, optimizer)
    return has_average


def names_of_head(config: ModelConfig) -> list[str]:
    """What belongs to one task: what a model begins anew that takes the rest from a model of another."""
    return [rule.ours for rule in huggingface_of(config.family).tensors(config) if rule.head]
