"""How far the curves and the final metrics of two runs are apart: relative errors, in absolute value.

What is too high at one step and too low at another does not cancel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock.alignment.comparison.curves import Axes, Curve
from paddock.alignment.comparison.logged import LoggedRun, Position

WIDEST_WINDOW = 50
"""Recorded steps that are smoothed over, at most; it is a tenth of them otherwise."""
FINAL = ("val", "valid", "validation", "eval", "evaluation", "test")
"""How the names of metrics begin that say what came of a run; their STAGE begins so, too."""
BEST = "summary.best_metric"


@dataclass(frozen=True)
class CurveErrors:
    """How far two curves are apart over the steps that both have."""

    steps: int
    mean: float
    max: float
    max_step: int
    final: float
    final_step: int
    smoothed: float
    """The largest error of the smoothed curves: single steps may be noisy."""
    smoothed_step: int
    """The last step of where that is."""
    window: int
    """Over how many recorded steps they were smoothed."""
    first_beyond: int | None
    """The first step at which the smoothed curves are further apart than the tolerance."""


@dataclass(frozen=True)
class MetricError:
    """A final metric of both runs."""

    name: str
    a: float
    b: float
    error: float
    is_absolute: bool
    """Where the reference is 0, a relative error is not defined."""
    where: str
    """Where both measured it, in words."""
    decides: bool
    """Whether it takes part in the verdict. A perplexity is the power of a loss that does, and makes more of its
    errors."""


def error_of(value: float, reference: float) -> float:
    """The relative error, in absolute value; the absolute one where the reference is 0."""
    if not (math.isfinite(value) and math.isfinite(reference)):
        return math.inf
    return abs(value - reference) / (abs(reference) or 1.0)


@dataclass(frozen=True)
class ErrorCurves:
    """The error at every common step, and that of the smoothed curves."""

    by_step: Curve = field(default_factory=dict)
    smoothed: Curve = field(default_factory=dict)


def curve_errors(a: Curve, b: Curve, tolerance: float) -> tuple[CurveErrors | None, ErrorCurves]:
    """How far two curves are apart, in all and step by step. Steps whose numbers are not finite are alarms elsewhere;
    here they only count if the last one is such."""
    common = [step for step in a if step in b]
    finite = [step for step in common if math.isfinite(a[step]) and math.isfinite(b[step])]
    if not finite:
        return None, ErrorCurves()
    by_step = {step: error_of(a[step], b[step]) for step in finite}
    worst = max(by_step, key=by_step.__getitem__)
    window = max(1, min(WIDEST_WINDOW, len(finite) // 10))
    smooth = [_smoothed([curve[step] for step in finite], window) for curve in (a, b)]
    smoothed = dict(zip(finite[window - 1 :], map(error_of, *smooth), strict=True))
    furthest = max(smoothed, key=smoothed.__getitem__)
    last = common[-1]
    return CurveErrors(
        steps=len(common),
        mean=sum(by_step.values()) / len(by_step),
        max=by_step[worst],
        max_step=worst,
        final=error_of(a[last], b[last]),
        final_step=last,
        smoothed=smoothed[furthest],
        smoothed_step=furthest,
        window=window,
        first_beyond=next((step for step, error in smoothed.items() if error > tolerance), None),
    ), ErrorCurves(by_step, smoothed)


def _smoothed(values: list[float], window: int) -> list[float]:
    """The mean of every so many in a row."""
    return [sum(values[end - window : end]) / window for end in range(window, len(values) + 1)]


def final_metrics(a: LoggedRun, b: LoggedRun, axes: Axes, last: int | None) -> tuple[MetricError, ...]:
    """What both runs measured of their models, at the last place where both did."""
    found = []
    for name in a.series:
        if name not in b.series or not (is_final(a, name) or is_final(b, name)):
            continue
        values = axes.a.placed(a.series[name], last), axes.b.placed(b.series[name], last)
        common = [place for place in values[0] if place in values[1]]
        places = (max(common),) * 2 if common else tuple(max(one, default=None) for one in values)
        if places[0] is None or places[1] is None:
            continue
        value, reference = values[0][places[0]], values[1][places[1]]
        where = _words(places[0]) if common else f"{_words(places[0])} and {_words(places[1])}"
        decides = not _follows_from_loss(name, a, b)
        found.append(MetricError(name, value, reference, error_of(value, reference), reference == 0, where, decides))
    return tuple(found)


def _follows_from_loss(name: str, a: LoggedRun, b: LoggedRun) -> bool:
    loss = re.sub("(perplexity|ppl)$", "loss", name)
    return loss != name and loss in a.series and loss in b.series


def is_final(run: LoggedRun, name: str) -> bool:
    """Whether a metric says what came of a run, rather than how it went on."""
    stage = str(run.described.get(name, {}).get("STAGE", ""))
    return name == BEST or {re.split(r"[./_ ]", name)[0].casefold(), stage.casefold()} & set(FINAL) != set()


def lonely_metrics(a: LoggedRun, b: LoggedRun) -> Mapping[str, list[str]]:
    """Final metrics that only one of the runs has, by its name."""
    return {
        run.name: [name for name in run.series if is_final(run, name) and name not in other.series]
        for run, other in ((a, b), (b, a))
    }


def _words(place: Position) -> str:
    return "the end" if not place else f"step {place[-1]}" if len(place) > 1 else f"epoch {place[0]}"
