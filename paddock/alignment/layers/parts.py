"""One training step of a model, part by part: its beginning, each of its units, its end; forward and backward.

A part is given its inputs, and the gradients of what it hands on; so one device can compute it from another's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from paddock.models.model import Batch, Carry, Model
from paddock.parallel.pipeline.schedules import BEGIN, FINISH
from paddock.parallel.placement import to_device

Autocast = Callable[[], AbstractContextManager[Any]]
LOSS = "loss"


@dataclass
class Step:
    """What a part made of its inputs, and of the gradients that came from behind."""

    inputs: Carry
    outputs: Carry
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """Of its inputs, by `gradient of NAME`, and of its parameters."""


class PartRunner:
    """Computes single parts of a model on its device, forward and backward."""

    def __init__(self, model: Model, batch: Batch, autocast: Autocast = nullcontext) -> None:
        self.model, self._autocast = model, autocast
        self.device = next(model.parameters()).device
        self._batch = to_device(dict(batch), self.device)
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}

    @property
    def parts(self) -> list[str]:
        return [BEGIN, *self.model.units(), FINISH]

    def forward(self, part: str, inputs: Mapping[str, Tensor]) -> Step:
        """A part, given what the one before it handed on."""
        taken = {name: _leaf(tensor.detach().to(self.device)) for name, tensor in inputs.items()}
        with self._autocast():
            return Step(taken, self._run(part, dict(taken)))

    def backward(self, step: Step, behind: Mapping[str, Tensor]) -> None:
        """Go back through a part, given the gradients of what it handed on."""
        outputs = {name: tensor for name, tensor in step.outputs.items() if name in behind and tensor.requires_grad}
        leaves = {f"gradient of {name}": one for name, one in step.inputs.items() if one.requires_grad}
        for parameter in self._trained():
            leaves[f"gradient of {self._names[id(parameter)]}"] = parameter
        found = torch.autograd.grad(
            list(outputs.values()),
            list(leaves.values()),
            [behind[name].to(self.device, tensor.dtype) for name, tensor in outputs.items()],
            allow_unused=True,
        )
        step.gradients = {name: one for name, one in zip(leaves, found, strict=True) if one is not None}

    def _run(self, part: str, carry: Carry) -> Carry:
        if part == BEGIN:
            return self.model.begin(self._batch)
        if part == FINISH:
            return {LOSS: self.model.finish(carry, self._batch)}
        return self.model.run(part, carry, self._batch)

    def _trained(self) -> Iterator[nn.Parameter]:
        return (parameter for parameter in self.model.parameters() if parameter.requires_grad)


class Reference:
    """One training step of the reference, part by part: what every part was given and made."""

    def __init__(self, runner: PartRunner, rounding: PartRunner | None = None) -> None:
        """`rounding` computes the same model in the device's type, where that has few bits."""
        self.runner = runner
        self.rounding = rounding or runner
        self.steps: dict[str, Step] = {}
        self.behind: dict[str, dict[str, Tensor]] = {}
        """The gradients that came to each part from behind."""
        self.gradients: dict[str, Tensor] = {}
        """Of every parameter by its name, summed over all parts that use it."""
        carry: Carry = {}
        for part in runner.parts:
            self.steps[part] = runner.forward(part, carry)
            carry = self.steps[part].outputs
        behind = {LOSS: torch.ones_like(carry[LOSS])}
        for part in reversed(runner.parts):
            step = self.steps[part]
            self.behind[part] = behind
            runner.backward(step, behind)
            behind = {
                name: one for name in step.inputs if (one := step.gradients.get(f"gradient of {name}")) is not None
            }
            self._keep(step)

    def _keep(self, step: Step) -> None:
        for name, _ in self.runner.model.named_parameters():
            if (one := step.gradients.get(f"gradient of {name}")) is not None:
                self.gradients[name] = self.gradients[name] + one if name in self.gradients else one


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor
