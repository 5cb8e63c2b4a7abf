"""A foreign torch module as a model of one unit: its forward computes the loss of a batch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from paddock.errors import ConfigError
from paddock.models.model import Batch, Carry, Model
from paddock.models.own.config import OWN, OwnConfig
from paddock.plugins import PROGRAM, object_at

NAMED = "named."
"""How the entries of a batch begin that the module takes by name; the others are numbered, and taken in order."""


class OwnModel(Model):
    """The module, as everything here takes models."""

    inputs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: OwnConfig, module: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.own = LossOf(module)

    def begin(self, batch: Batch, cache: object = None) -> Carry:
        return {}

    def units(self) -> list[str]:
        return [OWN]

    def run(self, unit: str, carry: Carry, batch: Batch, cache: object = None) -> Carry:
        return {"loss": self.own(batch)}

    def finish(self, carry: Carry, batch: Batch, cache: object = None) -> Tensor:
        return carry["loss"]

    def initial(self, name: str) -> None:
        return None


class LossOf(nn.Module):
    """The loss of a batch, summed over its samples. What wraps a unit sees one tensor come out, whatever the module's
    forward gives."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Batch) -> Tensor:
        named = {name.removeprefix(NAMED): tensor for name, tensor in batch.items() if name.startswith(NAMED)}
        ordered = [tensor for name, tensor in batch.items() if not name.startswith(NAMED)]
        return _loss(self.module(*ordered, **named)) * num_samples(batch)


def num_samples(batch: Batch) -> int:
    """How many samples were joined."""
    return next(iter(batch.values())).shape[0]


def own_module(place: str, seed: int) -> nn.Module:
    """The module of a place, new: made by its function, or a copy of the one that the program lent, which stays as it
    is."""
    found = object_at(place)
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = copy.deepcopy(found) if isinstance(found, nn.Module) else found()
    name = place.removeprefix(PROGRAM)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{name} made an object of type {type(module).__name__}", why="it is to be a torch module")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ConfigError(f"{name} has nothing to learn", why="none of its parameters requires a gradient")
    return module


def _loss(found: Any) -> Tensor:
    """The loss among what a forward gave: itself, its entry or field `loss`, or the first of several."""
    if isinstance(found, Mapping):
        loss = found.get("loss")
    elif isinstance(found, Tensor):
        loss = found
    else:
        loss = getattr(found, "loss", found[0] if isinstance(found, tuple | list) and found else None)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(found).__name__}"
        raise ConfigError(
            f"the module's forward gave {what}, and no loss",
            why="a module of your own computes its loss itself, from a batch of your dataset",
            fix='let forward return a scalar tensor, {"loss": …}, an object with .loss, or a tuple that begins with it',
        )
    return loss.reshape(())
