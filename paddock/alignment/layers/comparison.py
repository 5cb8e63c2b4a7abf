"""A device against the reference, part by part of one training step: which layer goes wrong, and by how much.

Every part is given the reference's inputs and the reference's gradients from behind, so that no error of one part
reaches another. Nothing is kept but the reference's own step: the device computes a part, it is compared, and it is
forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from paddock.alignment.layers.closeness import FAR, SAME, Distance, distance, farthest, move, tolerance, unremarkable
from paddock.alignment.layers.noise import allow_noise, measure_noise, typical
from paddock.alignment.layers.parts import PartRunner, Reference, Step

Direction = Literal["forward", "backward", "update", "collective"]
OnTensor = Callable[["Compared", Tensor], None]
"""Hears of every tensor that the device computed."""
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
    noise: Distance | None = None
    """What the device differs from itself by, when it computes the same again; None where nobody looked."""

    @property
    def agrees(self) -> bool:
        return self.distance.within(self.allowed)


def align_parts(
    reference: Reference, device: PartRunner, number_type: torch.dtype, on_tensor: OnTensor | None = None
) -> Iterator[list[Compared]]:
    """Every tensor that the device computes of one training step, beside the reference's: parts in the order in which
    they run, of each what it makes and then the gradients."""
    for part in device.parts:
        yield compare_part(part, reference, device, number_type, on_tensor)


def compare_part(
    part: str,
    reference: Reference,
    device: PartRunner,
    number_type: torch.dtype,
    on_tensor: OnTensor | None = None,
) -> list[Compared]:
    """What the device makes of a part, and what it differs from itself by. Where it is more than a few roundings away,
    or `on_tensor` wants to know, the tolerance is found by moving the reference. Who records wants no noise, unless it
    is what explains a difference."""
    expected, usual = _tensors(reference.steps[part]), unremarkable(number_type)
    itself = device is reference.runner  # which has computed it already
    computed = expected if itself else compute_part(device, reference, part)
    found = distances(computed, expected)
    allowed, moved = dict.fromkeys(expected, usual), dict.fromkeys(expected, SAME)
    if on_tensor is not None or not _within(found, allowed):
        moved = distances(compute_part(Moved(reference.runner, number_type), reference, part), expected)
        allowed = {name: tolerance(moved[name], number_type) for name in expected}
    noise: Mapping[str, Distance] | None = None
    if not itself and all(one.is_zero for one in found.values()):
        noise = found  # the reference's own bits, which chance does not hit
    elif not itself and (on_tensor is None or not _within(found, allowed)):
        noise = measure_noise(partial(compute_part, device, reference, part), computed, expected)
        usual_noise = typical(noise)
        for name in allowed.keys() & noise.keys():
            known = farthest([noise[name], usual_noise])
            allowed[name] = allow_noise(allowed[name], known, moved[name], number_type)
    compared = {
        name: _compared(part, name, found[name], allowed[name], None if noise is None else noise.get(name))
        for name in expected
    }
    if on_tensor is not None:
        for name in computed:
            if name in compared:
                on_tensor(compared[name], computed[name])
    return list(compared.values())


def _within(found: Mapping[str, Distance], allowed: Mapping[str, Distance]) -> bool:
    return all(one.within(allowed[name]) for name, one in found.items())


class Moved:
    """The reference, from inputs and weights that were moved by a rounding."""

    def __init__(self, runner: PartRunner, number_type: torch.dtype) -> None:
        self._runner, self._number_type = runner, number_type

    def compute(self, part: str, step: Step, behind: Mapping[str, Tensor]) -> Step:
        model, seed = self._runner.model, SEED
        parameters = dict(model.named_parameters())
        kept = {name: parameter.data for name, parameter in parameters.items() if _used(step, name)}
        for name, values in move(kept, self._number_type, seed).items():
            parameters[name].data = values
        try:
            again = self._runner.forward(part, move(step.inputs, self._number_type, seed + 1))
            self._runner.backward(again, move(behind, self._number_type, seed + 2))
        finally:
            for name, values in kept.items():
                parameters[name].data = values
        return again


Side = PartRunner | Moved


def _used(step: Step, name: str) -> bool:
    return f"gradient of {name}" in step.gradients


def compute_part(side: Side, reference: Reference, part: str) -> dict[str, Tensor]:
    """All tensors of a part, from the reference's inputs and gradients."""
    given, behind = reference.steps[part], reference.behind[part]
    if isinstance(side, Moved):
        return _tensors(side.compute(part, given, behind))
    step = side.forward(part, given.inputs)
    side.backward(step, behind)
    return _tensors(step)


def _tensors(step: Step) -> dict[str, Tensor]:
    return {**{f"output {name}": tensor for name, tensor in step.outputs.items()}, **step.gradients}


def distances(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Distance]:
    return {name: distance(found[name], one.to("cpu")) if name in found else FAR for name, one in expected.items()}


def _compared(part: str, name: str, found: Distance, allowed: Distance, noise: Distance | None) -> Compared:
    return Compared(part, "forward" if name.startswith("output ") else "backward", name, found, allowed, noise)
