"""The optimizer of a recipe, with weight decay on matrices only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from paddock.devices import adapter_of
from paddock.training.config import OptimizerConfig
from paddock.training.optimization.adafactor import Adafactor


def build_optimizer(parameters: Sequence[nn.Parameter], config: OptimizerConfig) -> Optimizer:
    """What a recipe names, in its fused form where the device has one; norms and biases (vectors) do not decay."""
    members: dict[tuple[Any, bool], list[nn.Parameter]] = {}
    for parameter in parameters:  # one kernel takes tensors that lie over the same processes
        mesh = parameter.data.device_mesh if isinstance(parameter.data, DTensor) else None
        members.setdefault((mesh, parameter.dim() >= 2), []).append(parameter)
    groups = [
        {"params": group, "weight_decay": config.weight_decay if is_matrix else 0.0}
        for (_, is_matrix), group in members.items()
    ]
    if config.name == "adafactor":
        settings = {"beta2_decay": config.beta2_decay, "eps": (None, config.min_scale), "d": config.clip_threshold}
        return Adafactor(groups, lr=config.lr, **settings)  # type: ignore[arg-type]
    fused = adapter_of(parameters[0].device).fused_optimizer
    if config.name == "sgd":
        fused &= all(mesh is None for mesh, _ in members)  # the fused form knows no tensors that lie over processes
        return SGD(groups, lr=config.lr, momentum=config.momentum, fused=fused, foreach=not fused)
    kind = AdamW if config.name == "adamw" else Adam
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=fused, foreach=not fused)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """The rate of the next step, in every group."""
    for group in optimizer.param_groups:
        group["lr"] = rate
