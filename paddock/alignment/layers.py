"""A device against the reference, part by part of one training step: which layer goes wrong first, and by how much.

Every part of the model (its beginning, each unit, its end) is given the reference's inputs and the reference's gradients
from behind, on both sides, so that no error of one part reaches another. Nothing is kept but the reference's own step:
the device computes a part, it is compared, and it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from paddock.alignment.closeness import SAME, Distance, distance, move, tolerance, unremarkable
from paddock.models.model import Batch, Carry, Model
from paddock.parallel.placement import to_device
from paddock.parallel.schedules import BEGIN, FINISH

Direction = Literal["forward", "backward", "update"]
Autocast = Callable[[], AbstractContextManager[Any]]
LOSS = "loss"
UPDATE = "optimizer"
SEED = 5


@dataclass(frozen=True)
class Compared:
    """One tensor of a part, on the device beside the reference."""

    part: str
    direction: Direction
    tensor: str
    """`output x`, `gradient of x`, `gradient of attention.query.weight` …"""
    distance: Distance
    allowed: Distance
    noise: Distance = SAME
    """What the device differs from itself by, when it computes the same once more."""

    @property
    def agrees(self) -> bool:
        return self.distance.within(self.allowed)


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

    def __init__(self, runner: PartRunner) -> None:
        self.runner = runner
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
            behind = {name: one for name in step.inputs if (one := step.gradients.get(f"gradient of {name}")) is not None}
            self._keep(step)

    def _keep(self, step: Step) -> None:
        for name, _ in self.runner.model.named_parameters():
            if (one := step.gradients.get(f"gradient of {name}")) is not None:
                self.gradients[name] = self.gradients[name] + one if name in self.gradients else one


def align_layers(reference: Reference, device: PartRunner, number_type: torch.dtype) -> Iterator[Compared]:
    """Every tensor that the device computes of one training step, beside the reference's: parts in the order in which
    they run, of each what it makes and then the gradients."""
    for part in device.parts:
        yield from compare_part(part, reference, device, number_type)


def compare_part(part: str, reference: Reference, device: PartRunner, number_type: torch.dtype) -> list[Compared]:
    """What the device makes of a part. Where that is more than a few roundings away, the tolerance is found by moving
    the reference, and the noise by computing once more."""
    expected, usual = _tensors(reference.steps[part]), unremarkable(number_type)
    found = _distances(_computed(device, reference, part), expected)
    if all(one.within(usual) for one in found.values()):
        return [_compared(part, name, found[name], usual) for name in expected]
    moved = _distances(_computed(_Moved(reference.runner, number_type), reference, part), expected)
    noise = _distances(_computed(device, reference, part), _computed(device, reference, part))
    allowed = {name: tolerance(moved[name], number_type) for name in expected}
    return [_compared(part, name, found[name], allowed[name], noise[name]) for name in expected]


class _Moved:
    """The reference, from inputs and weights that were moved by a rounding."""

    def __init__(self, runner: PartRunner, number_type: torch.dtype) -> None:
        self._runner, self._number_type = runner, number_type

    def compute(self, part: str, step: Step, behind: Mapping[str, Tensor]) -> Step:
        model, seed = self._runner.model, SEED
        parameters = dict(model.named_parameters())
        kept = {name: parameter.detach().clone() for name, parameter in parameters.items() if _used(step, name)}
        with torch.no_grad():
            for name, values in move(kept, self._number_type, seed).items():
                parameters[name].copy_(values)
        try:
            again = self._runner.forward(part, move(step.inputs, self._number_type, seed + 1))
            self._runner.backward(again, move(behind, self._number_type, seed + 2))
        finally:
            with torch.no_grad():
                for name, values in kept.items():
                    parameters[name].copy_(values)
        return again


def _used(step: Step, name: str) -> bool:
    return f"gradient of {name}" in step.gradients


def _computed(side: PartRunner | _Moved, reference: Reference, part: str) -> dict[str, Tensor]:
    """All tensors of a part, from the reference's inputs and gradients."""
    given, behind = reference.steps[part], reference.behind[part]
    if isinstance(side, _Moved):
        return _tensors(side.compute(part, given, behind))
    step = side.forward(part, given.inputs)
    side.backward(step, behind)
    return _tensors(step)


def _tensors(step: Step) -> dict[str, Tensor]:
    return {**{f"output {name}": tensor for name, tensor in step.outputs.items()}, **step.gradients}


def _distances(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Distance]:
    missing = Distance(float("inf"), float("inf"))
    return {name: distance(found[name], one) if name in found else missing for name, one in expected.items()}


def _compared(part: str, name: str, found: Distance, allowed: Distance, noise: Distance = SAME) -> Compared:
    return Compared(part, "forward" if name.startswith("output ") else "backward", name, found, allowed, noise)


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor
