"""A run compared with a reference: first whether they can be compared at all, then how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from paddock.alignment.comparison.alarms import length_alarms, loss_alarms, metric_alarms, norm_alarms, notes_of
from paddock.alignment.comparison.comparability import UNKNOWN, Comparability, Fact, compare_facts
from paddock.alignment.comparison.curves import NORMS, RATES, Axes, Curve, common_axes, find_loss, find_metric
from paddock.alignment.comparison.errors import (
    CurveErrors,
    ErrorCurves,
    MetricError,
    curve_errors,
    error_of,
    final_metrics,
)
from paddock.alignment.comparison.logged import LoggedRun
from paddock.errors import CheckFailed, bad_value

TOLERANCE = 0.01
"""Of the accuracy rule of model zoos: one percent."""
SAME_RATE = 0.01
"""By how much learning rates may differ: logs print few of their digits."""
Runs = tuple[LoggedRun, LoggedRun]


@dataclass(frozen=True)
class Settings:
    """How runs are to be compared."""

    tolerance: float = TOLERANCE
    loss: tuple[str, ...] = ()
    """The metric, or one for each run; none is the one that is called so."""
    steps: int | None = None
    """Compare this far, and ask no more of either."""
    steps_per_epoch: int | None = None
    """Of runs that count their steps anew in every epoch."""
    offset: int | None = None
    """Added to the steps of the reference."""
    allow_differences: bool = False

    def check(self) -> None:
        """Raise ConfigError for what cannot be meant."""
        if not (math.isfinite(self.tolerance) and self.tolerance > 0):
            raise bad_value("--tolerance", self.tolerance, "it is a relative error above 0", "0.01 is one percent")
        if len(self.loss) > 2:
            raise bad_value("--loss", " ".join(self.loss), "there are two runs", "name one metric, or one for each")
        for name in ("steps", "steps_per_epoch"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise bad_value("--" + name.replace("_", "-"), value, "it is at least 1", "leave it out")


@dataclass(frozen=True)
class RunComparison:
    """What came of comparing run `a` with the reference `b`."""

    a: LoggedRun
    b: LoggedRun
    tolerance: float
    facts: Comparability
    loss_names: tuple[str, str]
    losses: tuple[Curve, Curve]
    errors: CurveErrors | None
    """None where the two have no step in common at which both are numbers."""
    error_curves: ErrorCurves
    norm: CurveErrors | None
    """The same of the gradient norm, where both have one: it is shown, and decides nothing."""
    metrics: tuple[MetricError, ...]
    alarms: tuple[str, ...]
    """What is never agreement."""
    notes: tuple[str, ...]

    @property
    def beyond(self) -> list[str]:
        """What is further apart than the tolerance."""
        found = []
        if self.errors is not None:
            parts = {"mean": self.errors.mean, "smoothed": self.errors.smoothed, "final": self.errors.final}
            found += [
                f"{name} error of the loss {percent(value)}" for name, value in parts.items() if self.fails(value)
            ]
        found += [
            f"error of {metric.name} {shown_error(metric)}"
            for metric in self.metrics
            if metric.decides and self.fails(metric.error)
        ]
        return found

    @property
    def aligned(self) -> bool:
        return not (self.alarms or self.beyond)

    def fails(self, error: float) -> bool:
        """Whether an error is too large; one that is no number is."""
        return not error <= self.tolerance

    def to_dict(self) -> dict[str, Any]:
        ends = [max(curve, default=None) for curve in self.losses]
        runs = [
            {"name": run.name, "form": run.form, "last_step": end}
            for run, end in zip((self.a, self.b), ends, strict=True)
        ]
        return {
            "aligned": self.aligned,
            "tolerance": self.tolerance,
            "runs": runs,
            "loss": {"names": self.loss_names, "errors": None if self.errors is None else asdict(self.errors)},
            "grad_norm": None if self.norm is None else asdict(self.norm),
            "metrics": [asdict(metric) for metric in self.metrics],
            "beyond": self.beyond,
            "alarms": self.alarms,
            "notes": self.notes,
            "facts": [fact.to_dict() for fact in self.facts.facts],
        }

    def raise_if_different(self) -> None:
        """Raise CheckFailed if the runs are not aligned."""
        if not self.aligned:
            reasons = [*self.alarms, *self.beyond]
            more = f"; and {len(reasons) - 6} more" if len(reasons) > 6 else ""
            raise CheckFailed(f"{self.a.name} is not aligned with {self.b.name}", why="; ".join(reasons[:6]) + more)


def percent(error: float) -> str:
    """An error for people: 0.00123 → `0.12 %`, with three digits, however small."""
    return f"{100 * error:.3g} %" if math.isfinite(error) else "without bound"


def shown_error(metric: MetricError) -> str:
    return (
        f"{metric.error:.3g}, absolute" if metric.is_absolute and math.isfinite(metric.error) else percent(metric.error)
    )


def compare_runs(a: LoggedRun, b: LoggedRun, settings: Settings) -> RunComparison:
    """Compare a run with the reference `b`; a ConfigError where that would mean nothing, unless it is allowed."""
    settings.check()
    runs, last = (a, b), settings.steps
    wanted = settings.loss * (2 // len(settings.loss)) if settings.loss else (None, None)
    names = find_loss(a, wanted[0]), find_loss(b, wanted[1])
    axes = common_axes(runs, names, settings.steps_per_epoch, settings.offset)
    facts = Comparability((*compare_facts(a.facts, b.facts).facts, _rates(runs, axes, last)))
    if not settings.allow_differences:
        facts.check(a.name, b.name)
    losses = _curves(runs, names, axes, last)
    errors, error_curves = curve_errors(*losses, settings.tolerance)
    metrics = final_metrics(a, b, axes, last)
    return RunComparison(
        a=a,
        b=b,
        tolerance=settings.tolerance,
        facts=facts,
        loss_names=names,
        losses=losses,
        errors=errors,
        error_curves=error_curves,
        norm=_norm_errors(runs, axes, settings),
        metrics=metrics,
        alarms=tuple(_alarms(runs, names, axes, losses, metrics, last)),
        notes=tuple(notes_of(runs, losses, axes, facts, metrics)),
    )


def _alarms(
    runs: Runs,
    names: tuple[str, str],
    axes: Axes,
    losses: tuple[Curve, Curve],
    metrics: tuple[MetricError, ...],
    last: int | None,
) -> Iterator[str]:
    for run, name, loss, axis in zip(runs, names, losses, (axes.a, axes.b), strict=True):
        yield from loss_alarms(run, loss, name)
        yield from norm_alarms(run, axis, last)
    yield from metric_alarms(metrics, *runs)
    yield from length_alarms(runs, losses, axes, last)


def _curves(runs: Runs, names: tuple[str, str], axes: Axes, last: int | None) -> tuple[Curve, Curve]:
    (a, b), (name_a, name_b) = runs, names
    return axes.a.curve(a.series.get(name_a, {}), last), axes.b.curve(b.series.get(name_b, {}), last)


def _norm_errors(runs: Runs, axes: Axes, settings: Settings) -> CurveErrors | None:
    a, b = find_metric(runs[0], NORMS), find_metric(runs[1], NORMS)
    if a is None or b is None:
        return None
    return curve_errors(*_curves(runs, (a, b), axes, settings.steps), settings.tolerance)[0]


def _rates(runs: Runs, axes: Axes, last: int | None) -> Fact:
    """Whether the learning rates of the common steps are the same: recipes that differ in length, and so in their
    schedules, do not say so themselves."""
    name, (a, b) = "learning rate by step", (find_metric(run, RATES) for run in runs)
    if a is None or b is None:
        said = {True: UNKNOWN, False: "recorded"}
        return Fact(name, name, said[a is None], said[b is None], "unknown", "decides")
    rates = _curves(runs, (a, b), axes, last)
    common = [step for step in rates[0] if step in rates[1]]
    differs = next((step for step in common if error_of(rates[0][step], rates[1][step]) > SAME_RATE), None)
    if differs is None:
        return Fact(name, name, "recorded", "recorded", "same" if common else "unknown", "decides")
    rate_a, rate_b = (f"{curve[differs]:.3g} at step {differs}" for curve in rates)
    return Fact(name, name, rate_a, rate_b, "differs", "decides")
