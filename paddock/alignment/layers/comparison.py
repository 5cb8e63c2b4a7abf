"""A device against the reference, part by part of one training step: which layer goes wrong, and by how much.

Every part is given the reference's inputs and the reference's gradients from behind, so that no error of one part
reaches another. Nothing is kept but the reference's own step, in memory: the device computes a part, it is compared,
and it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from paddock.alignment.layers.closeness import (
    FAR,
    SAME,
    WIDE_DRAWS,
    WIDE_ROUNDINGS,
    Distance,
    distance,
    farthest,
    has_few_bits,
    move,
    tolerance,
    wide_tolerance,
)
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
    reference: Reference,
    device: PartRunner,
    number_type: torch.dtype,
    on_tensor: OnTensor | None = None,
    *,
    wide: bool = False,
) -> Iterator[list[Compared]]:
    """Every tensor that the device computes of one training step, beside the reference's: parts in the order in which
    they run, of each what it makes and then the gradients."""
    for part in device.parts:
        yield compare_part(part, reference, device, number_type, on_tensor, wide=wide)


def compare_part(
    part: str,
    reference: Reference,
    device: PartRunner,
    number_type: torch.dtype,
    on_tensor: OnTensor | None = None,
    *,
    wide: bool = False,
) -> list[Compared]:
    """What the device makes of a part, and what it differs from itself by. It goes only as far as it must: where
    neither a few roundings nor one more computation on the device explain what is found, or `on_tensor` wants to know,
    the tolerance is found by moving the reference; where that does not explain it, the noise is measured better. Who
    records wants no noise, unless it is what explains a difference. `wide` is for types of few bits where no operator
    is looked at."""
    expected = _tensors(reference.steps[part])
    itself = device is reference.runner  # which has computed it already
    computed = expected if itself else compute_part(device, reference, part)
    found = distances(computed, expected)
    again = partial(compute_part, device, reference, part)
    moved, noise = dict.fromkeys(expected, SAME), None
    if not itself and all(one.is_zero for one in found.values()):
        noise = found  # the reference's own bits, which chance does not hit
    elif on_tensor is None:
        noise = measure_noise(again, computed, expected, repeats=1)
    allowed = _allowed(moved, noise, number_type)
    if on_tensor is not None or not _within(found, allowed):
        if wide and has_few_bits(number_type):
            allowed = widened(part, reference, number_type, allowed)
        else:
            moved = distances(compute_part(Moved(reference.rounding, number_type), reference, part), expected)
            allowed = _allowed(moved, noise, number_type)
    if not _within(found, allowed):
        noise = measure_noise(again, computed, expected, known=noise)
        least = _allowed(moved, noise, number_type)
        allowed = {name: farthest([one, least[name]]) for name, one in allowed.items()}
    compared = {
        name: _compared(part, name, found[name], allowed[name], None if noise is None else noise.get(name))
        for name in expected
    }
    if on_tensor is not None:
        for name in computed:
            if name in compared:
                on_tensor(compared[name], computed[name])
    return list(compared.values())


def forgive(compared: Sequence[Compared], reference: Reference, number_type: torch.dtype) -> list[Compared]:
    """A part again, in a type of few bits, none of whose operators is wrong."""
    allowed = widened(compared[0].part, reference, number_type, {one.tensor: one.allowed for one in compared})
    return [replace(one, allowed=allowed[one.tensor]) for one in compared]


def widened(
    part: str, reference: Reference, number_type: torch.dtype, allowed: Mapping[str, Distance]
) -> dict[str, Distance]:
    """What a part's tensors may differ by where their operators are not known to be right or wrong."""
    expected = _tensors(reference.steps[part])
    draws = [
        distances(compute_part(Moved(reference.rounding, number_type, WIDE_ROUNDINGS, draw), reference, part), expected)
        for draw in range(WIDE_DRAWS)
    ]
    return {
        name: farthest([least, wide_tolerance([one[name] for one in draws], number_type)])
        for name, least in allowed.items()
    }


def _allowed(
    moved: Mapping[str, Distance], noise: Mapping[str, Distance] | None, number_type: torch.dtype
) -> dict[str, Distance]:
    """By each tensor's name: what it may differ by, with room for the device's noise where that is known."""
    allowed = {name: tolerance(one, number_type) for name, one in moved.items()}
    if noise is not None:
        usual = typical(noise)
        for name in allowed.keys() & noise.keys():
            allowed[name] = allow_noise(allowed[name], farthest([noise[name], usual]), moved[name], number_type)
    return allowed


def _within(found: Mapping[str, Distance], allowed: Mapping[str, Distance]) -> bool:
    return all(one.within(allowed[name]) for name, one in found.items())


class Moved:
    """The reference, from inputs and weights that were moved by a rounding, or by several."""

    def __init__(self, runner: PartRunner, number_type: torch.dtype, roundings: float = 1, draw: int = 0) -> None:
        self._runner, self._number_type, self._roundings, self._seed = runner, number_type, roundings, SEED + 3 * draw

    def compute(self, part: str, step: Step, behind: Mapping[str, Tensor]) -> Step:
        model = self._runner.model
        parameters = dict(model.named_parameters())
        kept = {name: parameter.data for name, parameter in parameters.items() if _used(step, name)}
        for name, values in self._move(kept, self._seed).items():
            parameters[name].data = values
        try:
            again = self._runner.forward(part, self._move(step.inputs, self._seed + 1))
            self._runner.backward(again, self._move(behind, self._seed + 2))
        finally:
            for name, values in kept.items():
                parameters[name].data = values
        return again

    def _move(self, tensors: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
        return move(tensors, self._number_type, seed, self._roundings)


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
