"""How far two traces of the same training are apart, and where they part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TOLERANCE = 1e-5
"""The largest relative difference of a loss or gradient norm between two layouts, in float32."""
NEGLIGIBLE = 1e-4
"""Gradients below this share of the whole are rounding noise, and tell nothing."""


@dataclass(frozen=True)
class Difference:
    """A layout's numbers beside those of one process."""

    layout: str
    loss: float
    """The largest relative difference of the loss over all steps."""
    norm: float
    """The same of the gradient norm."""
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
    tensors: Sequence[str],
    tolerance: float = TOLERANCE,
) -> Difference:
    """The difference of a trace from that of one process; `tensors` are the parameters' names."""
    losses = [relative(*pair) for pair in zip(trace["losses"], alone["losses"], strict=True)]
    norms = [relative(*pair) for pair in zip(trace["norms"], alone["norms"], strict=True)]
    bad = [step for step, pair in enumerate(zip(losses, norms, strict=True)) if max(pair) > tolerance]
    if not bad:
        return Difference(layout, max(losses), max(norms), None)
    at = bad[0]
    pairs = list(zip(trace["tensors"][at], alone["tensors"][at], strict=True))
    floor = NEGLIGIBLE * alone["norms"][at]
    telling = [number for number, (a, b) in enumerate(pairs) if max(a, b) > floor and relative(a, b) > tolerance]
    return Difference(
        layout,
        max(losses),
        max(norms),
        at + 1,
        (trace["losses"][at], alone["losses"][at]),
        (trace["norms"][at], alone["norms"][at]),
        tensors[telling[0]] if telling else None,
        pairs[telling[0]] if telling else None,
    )


def relative(value: float, reference: float) -> float:
    """The relative difference; of a number that is not finite, infinite."""
    if not (math.isfinite(value) and math.isfinite(reference)):
        return math.inf
    return abs(value - reference) / max(abs(reference), 1e-30)
