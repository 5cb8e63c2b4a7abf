"""When a loss or gradient is not finite: run the step again, watching, and name the first module that went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paddock.parallel.placement import local


def first_bad_module(models: Sequence[nn.Module], run: Callable[[], object]) -> str | None:
    """The first module whose output holds a nan or an infinity while `run` goes forward."""
    found: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not _finite(output):
                found.append(name)

        return look

    # A module's hook runs after its children's, so the innermost culprit is the first to be found.
    named = [(name, module) for model in models for name, module in model.named_modules() if name]
    hooks = [module.register_forward_hook(watch(name)) for name, module in named]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def bad_parameters(models: Sequence[nn.Module]) -> list[str]:
    """Parameters that are themselves not finite."""
    return [name for model in models for name, p in model.named_parameters() if not _finite(p)]


def bad_gradients(models: Sequence[nn.Module]) -> list[str]:
    """Parameters whose gradient is not finite, the last layer first: the backward pass comes from there."""
    named = [pair for model in models for pair in model.named_parameters()]
    return [name for name, p in named if p.grad is not None and not _finite(p.grad)][::-1]


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(local(tensor.detach())).all())


WEIGHTS = "the weights themselves are not finite: "
MODULE = "the first module whose output is not finite: "
GRADIENTS = "the forward pass is finite; gradients are not, from the output side: "


def explain(models: Sequence[nn.Module], run: Callable[[], object]) -> str:
    """One sentence on where a step went wrong. Every process runs the step, whatever it finds before."""
    gradients, parameters = bad_gradients(models), bad_parameters(models)
    module = first_bad_module(models, run)
    if parameters:
        return WEIGHTS + _some(parameters)
    if module is not None:
        return MODULE + module
    if gradients:
        return GRADIENTS + _some(gradients)
    return "all modules and gradients are finite, so the loss or the norm overflowed when summed"


def most_telling(told: Sequence[str]) -> str:
    """Of what the processes say, the sentence nearest to the cause; of equal ones that of the earliest stage."""
    for kind in (WEIGHTS, MODULE, GRADIENTS):
        for text in told:
            if text.startswith(kind):
                return text
    return told[0]


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
