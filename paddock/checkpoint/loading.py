"""A checkpoint of a whole model into the pieces of it that one process holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from paddock.checkpoint.storage import read_tensors, saved_tensors
from paddock.checkpoint.tensors import (
    MODEL,
    OPTIMIZER,
    copy_to_twins,
    give_to_optimizer,
    room_for_optimizer,
    tensors_of,
)
from paddock.models.config import ModelConfig
from paddock.models.registry import parameter_names


def load_models(path: Path, models: Sequence[nn.Module], optimizer: Optimizer | None = None) -> None:
    """Fill the models, and the optimizer's state if one is given, whatever layout wrote the checkpoint.

    Called by all processes together. Each reads what it holds, straight into place.
    """
    config = models[0].config
    assert isinstance(config, ModelConfig)
    saved = saved_tensors(path)
    state = {} if optimizer is None else room_for_optimizer(saved, models)
    names = parameter_names(config)
    elsewhere = {name for name in saved if name.startswith(OPTIMIZER) or name.removeprefix(MODEL) in names}
    read_tensors(path, {**tensors_of(models, None), **state}, elsewhere)
    copy_to_twins(models)
    if optimizer is not None:
        give_to_optimizer(state, models, optimizer)
