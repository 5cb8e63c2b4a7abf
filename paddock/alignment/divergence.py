"""How far two traces of the same training are apart, and where they part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TOLERANCE = 1e-5
"""The largest relative difference of a loss or gradient norm between two layouts, in float32."""
DOUBLE_TOLERANCE = 1e-7
"""The same in float64. Rounding begins at 1e-16 there; a ResNet's first twenty steps can make 1e-9 of it."""
ROOM_FOR_TENSORS = 10
"""How much more the gradient norm of a single parameter may differ: it rounds more."""
SMALL = 1e-2
"""Gradients that are a smaller share of the whole count as this share: they round as what nearly cancels in them."""


@dataclass(frozen=True)
class Difference:
    """A layout's numbers beside those of one process."""

    layout: str
    losses: tuple[float, ...]
    """Its loss of every step."""
    loss: float
    """The largest relative difference of the loss over all steps."""
    norm: float
    """The same of the gradient norm."""
    tensors: float
    """The same of the gradient norm of each parameter: the worst."""
    first_step: int | None
    """The first step (from 1) beyond the tolerance."""
    step_loss: tuple[float, float] | None = None
    """The losses of that step: the layout's and one process's."""
    step_norm: tuple[float, float] | None = None
    tensor: str | None = None
    """The first parameter, in the model's order, whose gradient differs at that step."""
    tensor_norm: tuple[float, float] | None = None

    @property
    def agrees(self) -> bool:
        return self.first_step is None

    def explain(self) -> str:
        """Where it parts from one process, in a sentence."""
        assert self.step_loss is not None and self.step_norm is not None
        text = (
            f"step {self.first_step} is the first that differs: loss {self.step_loss[0]:.8g} against "
            f"{self.step_loss[1]:.8g}, gradient norm {self.step_norm[0]:.8g} against {self.step_norm[1]:.8g}; "
        )
        if self.tensor is None or self.tensor_norm is None:
            return text + "the gradient norm of every parameter agrees"
        mine, other = self.tensor_norm
        return text + f"the first gradient that differs is {self.tensor}: norm {mine:.8g} against {other:.8g}"

    def to_dict(self) -> dict[str, Any]:
        return {"agrees": self.agrees, **asdict(self)}


def compare(
    layout: str,
    trace: Mapping[str, Any],
    alone: Mapping[str, Any],
    names: Sequence[str],
    tolerance: float = TOLERANCE,
) -> Difference:
    """The difference of a trace from that of one process; `names` are the parameters'."""
    losses = [relative(*pair) for pair in zip(trace["losses"], alone["losses"], strict=True)]
    norms = [relative(*pair) for pair in zip(trace["norms"], alone["norms"], strict=True)]
    tensors = [_by_tensor(trace, alone, step) for step in range(len(losses))]
    worst = [max(step) for step in tensors]
    whole = tuple(trace["losses"]), max(losses), max(norms), max(worst)
    for at, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
        if max(loss, norm) > tolerance or worst[at] > tolerance * ROOM_FOR_TENSORS:
            break
    else:
        return Difference(layout, *whole, None)
    found = next((number for number, value in enumerate(tensors[at]) if value > tolerance * ROOM_FOR_TENSORS), None)
    return Difference(
        layout,
        *whole,
        at + 1,
        (trace["losses"][at], alone["losses"][at]),
        (trace["norms"][at], alone["norms"][at]),
        None if found is None else names[found],
        None if found is None else (trace["tensors"][at][found], alone["tensors"][at][found]),
    )


def _by_tensor(trace: Mapping[str, Any], alone: Mapping[str, Any], step: int) -> list[float]:
    """The relative difference of each parameter's gradient norm in a step."""
    floor = SMALL * alone["norms"][step]
    pairs = zip(trace["tensors"][step], alone["tensors"][step], strict=True)
    return [relative(a, b, floor) for a, b in pairs]


def relative(value: float, reference: float, floor: float = 0.0) -> float:
    """The relative difference; of a number that is not finite, infinite. A reference below the floor counts as it."""
    if not (math.isfinite(value) and math.isfinite(reference)):
        return math.inf
    return abs(value - reference) / max(abs(reference), floor, 1e-30)
