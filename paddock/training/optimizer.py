"""The optimizer of a recipe, with weight decay on matrices only."""

from __future__ import annotations

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from paddock.training.config import OptimizerConfig


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """AdamW, Adam or SGD in its fused form; norms and biases (vectors) do not decay."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.name == "sgd":
        return SGD(groups, lr=config.lr, momentum=config.momentum, fused=True)
    kind = AdamW if config.name == "adamw" else Adam
    return kind(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """The rate of the next step, in every group."""
    for group in optimizer.param_groups:
        group["lr"] = rate
