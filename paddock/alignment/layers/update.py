"""The optimizer's update, on the device and on the reference, from the same weights and the same gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from paddock.alignment.layers.closeness import ROOM, Distance, distance
from paddock.alignment.layers.comparison import Compared
from paddock.models.model import Model
from paddock.training.config import OptimizerConfig
from paddock.training.optimizer import build_optimizer

UPDATE = "optimizer"


def compare_update(
    reference: Model, device: Model, gradients: Mapping[str, Tensor], config: OptimizerConfig
) -> Iterator[Compared]:
    """Every parameter and every average that the optimizer keeps of its gradient, after one step. The weights of both
    models change."""
    bound = ROOM * torch.finfo(torch.float32).eps
    allowed = Distance(bound, bound)
    expected, found = (_stepped(model, gradients, config) for model in (reference, device))
    for name, tensor in expected.items():
        yield Compared(UPDATE, "update", name, distance(found[name], tensor), allowed)


def _stepped(model: Model, gradients: Mapping[str, Tensor], config: OptimizerConfig) -> dict[str, Tensor]:
    """What one step of the optimizer makes of the weights, and what it keeps."""
    parameters = {name: one for name, one in model.named_parameters() if one.requires_grad and name in gradients}
    for name, parameter in parameters.items():
        parameter.grad = torch.empty_like(parameter).copy_(gradients[name])  # laid out as fused kernels take it
    optimizer = build_optimizer(list(parameters.values()), config)
    optimizer.step()
    found: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        found[f"new {name}"] = parameter.detach()
        kept = optimizer.state[parameter].items()
        found |= {f"{key} of {name}": value for key, value in kept if isinstance(value, Tensor) and value.dim() > 0}
        parameter.grad = None
    return found
