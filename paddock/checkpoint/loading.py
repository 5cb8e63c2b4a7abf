"""A checkpoint of a whole model into the pieces of it that one process holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paddock.checkpoint.inheritance import inherit
from paddock.checkpoint.storage import check_names, read_tensors, saved_tensors
from paddock.checkpoint.tensors import (
    AVERAGE,
    MODEL,
    give_to_optimizer,
    named_parameters,
    prefix_of_weights,
    room_for_optimizer,
    sync_duplicates,
    tensors_of,
)
from paddock.models.config import ModelConfig
from paddock.models.registry import build_model, parameter_names


def load_models(
    path: Path,
    models: Sequence[nn.Module],
    optimizer: Optimizer | None = None,
    average: Sequence[tuple[str, Tensor]] = (),
) -> bool:
    """Fill the models, whatever layout wrote the checkpoint: with an optimizer, to go on training, which gets its
    state, too; without one, to use them, and then with the average of the weights, where the run kept one.

    Called by all processes together. Each reads what it holds, straight into place. Returns whether `average`, which
    training goes on with, was there to be filled.
    """
    config = _config(models)
    inherit(path, config)
    saved = saved_tensors(path)
    state = {} if optimizer is None else room_for_optimizer(saved, models)
    prefix = prefix_of_weights(saved) if optimizer is None else MODEL
    average = average if prefix_of_weights(saved) == AVERAGE else ()
    wanted = {**tensors_of(models, None, prefix), **state, **dict(average)}
    read_tensors(path, wanted, _of_others(saved, prefix, parameter_names(config)))
    sync_duplicates([*named_parameters(models), *average])
    if optimizer is not None:
        give_to_optimizer(state, models, optimizer)
    return bool(average)


def begin_from(path: Path, models: Sequence[nn.Module]) -> list[str]:
    """Fill the models with a checkpoint's weights, to train them anew, perhaps for another task: the head that it
    lacks stays as it is. Returns what to say about it. Called by all processes together."""
    config = _config(models)
    found = inherit(path, config, new_heads=True)
    saved = saved_tensors(path)
    prefix = prefix_of_weights(saved)
    wanted = tensors_of(models, None, prefix)
    for name in found.fresh:
        wanted.pop(prefix + name, None)
    read_tensors(path, wanted, _of_others(saved, prefix, [*parameter_names(config), *found.left_out]))
    sync_duplicates(named_parameters(models))
    return found.remarks()


def check_checkpoint(path: Path, config: ModelConfig, *, new_heads: bool) -> None:
    """An error, if a checkpoint would not fit a model; only names and shapes are looked at. With `new_heads` it is to
    `begin_from`, else to go on with."""
    found = inherit(path, config, new_heads=new_heads)
    with torch.device("meta"):
        whole = build_model(config).state_dict()
    saved = saved_tensors(path)
    prefix = prefix_of_weights(saved) if new_heads else MODEL
    wanted = {prefix + name: tensor for name, tensor in whole.items() if name not in found.fresh}
    others = _of_others(saved, prefix, [*found.fresh, *found.left_out])
    check_names(path, wanted, {name: entry for name, entry in saved.items() if name not in others})


def _config(models: Sequence[nn.Module]) -> ModelConfig:
    config = models[0].config
    assert isinstance(config, ModelConfig)
    return config


def _of_others(saved: Collection[str], prefix: str, names: Sequence[str]) -> set[str]:
    """What a checkpoint may hold besides what this process reads: other kinds, and weights of other processes."""
    known = set(names)
    return {name for name in saved if not name.startswith(prefix) or name.removeprefix(prefix) in known}
