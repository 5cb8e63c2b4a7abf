"""A model and its optimizer as one flat dictionary of tensors, by name: nothing in it depends on a layout."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

MODEL = "model."
OPTIMIZER = "optimizer."


def tensors_of(model: nn.Module, optimizer: Optimizer | None) -> dict[str, Tensor]:
    """`model.<name>` for parameters and buffers, `optimizer.<kind>.<name>` for the optimizer's state."""
    tensors = {MODEL + name: tensor for name, tensor in model.state_dict().items()}
    if optimizer is not None:
        for name, parameter in model.named_parameters():
            for kind, value in optimizer.state.get(parameter, {}).items():
                tensors[f"{OPTIMIZER}{kind}.{name}"] = value
    return tensors


def room_for_optimizer(saved: Mapping[str, tuple[torch.Size, torch.dtype]], model: nn.Module) -> dict[str, Tensor]:
    """Empty tensors for the optimizer state that a checkpoint holds."""
    parameters = dict(model.named_parameters())
    room = {}
    for key, (shape, dtype) in saved.items():
        if key.startswith(OPTIMIZER):
            _, name = key.removeprefix(OPTIMIZER).split(".", 1)
            # A step counter stays on the host, where optimizers keep it; the rest lives beside its parameter.
            device = parameters[name].device if len(shape) else torch.device("cpu")
            room[key] = torch.empty(shape, dtype=dtype, device=device)
    return room


def give_to_optimizer(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: Optimizer) -> None:
    """Install loaded state in an optimizer."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, tensor in tensors.items():
        kind, name = key.removeprefix(OPTIMIZER).split(".", 1)
        optimizer.state[parameters[name]][kind] = tensor
