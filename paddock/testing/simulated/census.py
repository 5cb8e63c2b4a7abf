"""Which operators a model's training step runs on a device, in which module and in which direction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from paddock.alignment.layers.modules import ModuleTrace
from paddock.alignment.layers.operators import compares
from paddock.alignment.layers.parts import PartRunner
from paddock.config.recipe import Recipe
from paddock.config.rules import arithmetic_of
from paddock.devices import DeviceAdapter
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model, example_batch

Place = tuple[str, str, str]
"""Operator (without its overload), module, direction."""


def operators_of(recipe: Recipe, adapter: DeviceAdapter) -> list[Place]:
    """Those whose results are numbers that do not depend on chance, each once, in the order of their first calls."""
    config = recipe.model.without_dropout()
    model = build_model(config)
    initialize(model, recipe.train.seed)
    micro = arithmetic_of(recipe, 1).batch.micro
    batch = example_batch(config, micro, recipe.data.sample_shape(), seed=recipe.train.seed)
    runner = PartRunner(model.to(adapter.torch_device(0)).train(), batch)
    found: dict[Place, None] = {}
    carry: dict[str, Tensor] = {}
    for part in runner.parts:
        with ModuleTrace(runner.model, part) as trace:
            with _Census(trace, runner.device, "forward", found):
                step = runner.forward(part, carry)
            trace.assign_rest(step.outputs.values())
            behind = {name: torch.ones_like(tensor) for name, tensor in step.outputs.items()}
            with _Census(trace, runner.device, "backward", found):
                runner.backward(step, behind)
        carry = step.outputs
    return list(found)


class _Census(TorchDispatchMode):
    """Notes every operator that runs inside."""

    def __init__(self, trace: ModuleTrace, device: torch.device, direction: str, found: dict[Place, None]) -> None:
        super().__init__()
        self._trace, self._device, self._direction, self._found = trace, device, direction, found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        makes = any(isinstance(one, Tensor) and one.is_floating_point() for one in pytree.tree_leaves(result))
        if makes and compares(func, (args, kwargs or {}), self._device):
            self._found[(str(func).rpartition(".")[0], self._trace.current, self._direction)] = None
        return result
