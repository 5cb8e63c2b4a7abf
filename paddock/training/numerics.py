"""When a loss or gradient is not finite: run the step again, watching, and name the first module that went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def first_bad_module(model: nn.Module, run: Callable[[], object]) -> str | None:
    """The first module whose output holds a nan or an infinity while `run` goes forward."""
    found: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(name)

        return look

    # A module's hook runs after its children's, so the innermost culprit is the first to be found.
    hooks = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None


def bad_parameters(model: nn.Module) -> list[str]:
    """Parameters that are themselves not finite."""
    return [name for name, p in model.named_parameters() if not bool(torch.isfinite(p).all())]


def bad_gradients(model: nn.Module) -> list[str]:
    """Parameters whose gradient is not finite, the last layer first: the backward pass comes from there."""
    names = [
        name for name, p in model.named_parameters() if p.grad is not None and not bool(torch.isfinite(p.grad).all())
    ]
    return names[::-1]


def explain(model: nn.Module, run: Callable[[], object]) -> str:
    """One sentence on where a step went wrong."""
    gradients = bad_gradients(model)
    parameters = bad_parameters(model)
    if parameters:
        return f"the weights themselves are not finite: {_some(parameters)}"
    module = first_bad_module(model, run)
    if module is not None:
        return f"the first module whose output is not finite: {module}"
    if gradients:
        return f"the forward pass is finite; gradients are not, from the output side: {_some(gradients)}"
    return "all modules and gradients are finite, so the loss or the norm overflowed when summed"


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
