"""The optimizer's update, on the device and on the reference, from the same weights and the same gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from paddock.alignment.layers.closeness import ROOM, SAME, Distance, distance
from paddock.alignment.layers.comparison import Compared
from paddock.alignment.layers.noise import allow_noise, measure_noise
from paddock.models.model import Model
from paddock.training.config import OptimizerConfig
from paddock.training.optimization.optimizer import build_optimizer

UPDATE = "optimizer"


def compare_update(
    reference: Model, device: Model, gradients: Mapping[str, Tensor], config: OptimizerConfig
) -> list[Compared]:
    """Every parameter and every average that the optimizer keeps of its gradient, after one step. The weights of both
    models change."""
    bound = ROOM * torch.finfo(torch.float32).eps
    before = {name: one.detach().to("cpu", copy=True) for name, one in device.named_parameters()}
    expected, found = (_stepped(model, gradients, config) for model in (reference, device))
    allowed = dict.fromkeys(expected, Distance(bound, bound))
    apart = {name: distance(found[name], tensor) for name, tensor in expected.items()}
    noise: dict[str, Distance] = {}
    if not all(apart[name].within(allowed[name]) for name in expected):

        def again() -> dict[str, Tensor]:
            with torch.no_grad():
                for name, parameter in device.named_parameters():
                    parameter.copy_(before[name])
            return _stepped(device, gradients, config)

        first = {name: tensor.to("cpu", copy=True) for name, tensor in found.items()}
        noise = measure_noise(again, first, expected)
        allowed = {name: allow_noise(one, noise[name], SAME, torch.float32) for name, one in allowed.items()}
    return [Compared(UPDATE, "update", name, apart[name], allowed[name], noise.get(name)) for name in expected]


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
