"""The plots of a report: a metric of several runs over an axis, as recorded or smoothed, with restarts marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.errors import bad_value
from paddock.reporting.curves import (
    FARTHEST,
    SMOOTHING,
    Axis,
    RunCurves,
    axis_format,
    common_axes,
    shared_names,
    tick_format,
)
from paddock.telemetry.drawing.plots import WIDTHS, Line, Mark, Plot, colored

SAME = 1e-3
"""Curves that are no further apart than this lie on each other on any screen."""
INNERMOST, RING = 2.0, 3.8
"""Widths of curves that lie on each other: the last one's, and by how much each before it is wider."""
MOST_RESTARTS = 40
"""Marks of a run; one that was restarted more often would be all marks."""


@dataclass(frozen=True)
class View:
    """How curves are to be shown."""

    axis: Axis = "step"
    smoothing: float | None = None
    """Steps of the window; None is as recorded."""
    is_logarithmic: bool = False

    def check(self, runs: Sequence[RunCurves]) -> None:
        """Raise ConfigError for what cannot be shown of these runs."""
        if self.smoothing is not None and not (math.isfinite(self.smoothing) and self.smoothing > 0):
            raise bad_value("--smooth", self.smoothing, "it is a number of steps above 0", "leave it out")
        if self.axis not in (axes := list(common_axes(runs))):
            lacking = ", ".join(run.name for run in runs if not run.has(self.axis))
            raise bad_value("--x", self.axis, f"not known of {lacking}", f"choose from: {', '.join(axes)}")


def smoothing_of(runs: Sequence[RunCurves]) -> float:
    """A window that suits the longest run."""
    return max(1.0, SMOOTHING * max(run.last_step for run in runs))


def figure_of(runs: Sequence[RunCurves], metric: str, view: View, *, both: float | None = None) -> Plot:
    """The plot of a metric. With `both`, a window, the smoothed curves are there beside those that were recorded, for a
    page that shows the one or the other."""
    names = shared_names([run.name for run in runs])
    having = [(number, run) for number, run in enumerate(runs) if metric in run.series]
    points = {number: run.points(metric, view.axis, view.smoothing) for number, run in having}
    nested = len(having) > 1 and lie_on_each_other(list(points.values()))
    lines = []
    for place, (number, run) in enumerate(having):
        tone, dashed = colored(number)
        width: float = INNERMOST + RING * (len(having) - 1 - place) if nested else WIDTHS["usual"]
        kind = f"run-{number}" + (" raw" if both is not None else "")
        lines.append(Line(names[number], points[number], tone, width if nested else "usual", dashed, kind))
        if both is not None:
            smooth = run.points(metric, view.axis, both)
            lines.append(
                Line(names[number], smooth, tone, width if nested else "usual", dashed, f"run-{number} smooth")
            )
    units = {name: unit for run in runs for name, unit in run.units.items()}
    return Plot(
        metric,
        lines,
        y_format=tick_format(metric, units),
        is_logarithmic=view.is_logarithmic,
        x_name=view.axis,
        counts_time=view.axis == "time",
        x_format=axis_format(view.axis),
        marks=[mark for number, run in having for mark in _marks(number, run, names[number], view.axis)],
        has_legend=both is None and len(having) > 1,
        shows_title=both is None,
    )


def _marks(number: int, run: RunCurves, name: str, axis: Axis) -> list[Mark]:
    places = {"step": lambda restart: restart.step, "tokens": lambda restart: restart.tokens}
    where = places.get(axis, lambda restart: restart.seconds)
    return [
        Mark(
            float(where(restart)),
            f"{name}: attempt {restart.number} goes on after step {restart.step}",
            colored(number)[0],
            f"run-{number}",
        )
        for restart in run.restarts[-MOST_RESTARTS:]
        if abs(where(restart)) < FARTHEST
    ]


def lie_on_each_other(curves: Sequence[dict[float, float]]) -> bool:
    """Whether all curves have the same values at the places that they have in common, as far as anybody could see."""
    first = curves[0]
    shared = set(first).intersection(*curves[1:])
    values = [value for value in first.values() if math.isfinite(value)]
    if not shared or not values:
        return False
    height = (max(values) - min(values)) or abs(values[0]) or 1.0
    apart = max(abs(one.get(x, math.inf) - first[x]) for one in curves[1:] for x in shared)
    return apart <= SAME * height and len(shared) > 0.9 * len(first)
