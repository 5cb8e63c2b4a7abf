"""What two runs must not be said to agree with: numbers that cannot be right, and runs that did not get as far.

An alarm is never agreement, even where both runs have it. A note is only said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from paddock.alignment.comparison.comparability import Comparability, word
from paddock.alignment.comparison.curves import NORMS, Axes, Curve, StepAxis, find_metric
from paddock.alignment.comparison.errors import MetricError, lonely_metrics
from paddock.alignment.comparison.logged import LoggedRun

SKIPPED = "train.skipped_steps"
"""How many steps a float16 run has skipped so far, because their gradients were not finite."""
FEW = 0.5
"""Of the recorded steps of the run that has fewer: where less is common, it is said."""


def loss_alarms(run: LoggedRun, loss: Curve, name: str) -> Iterator[str]:
    """Losses that cannot be right."""
    zeros = [step for step, value in loss.items() if value == 0]
    if zeros:
        yield f"{run.name}: {name} is exactly 0 {_where(zeros)}"
    odd = [step for step, value in loss.items() if not math.isfinite(value)]
    if odd:
        yield f"{run.name}: {name} is {loss[odd[0]]} {_where(odd)}"


def norm_alarms(run: LoggedRun, axis: StepAxis, last: int | None) -> Iterator[str]:
    """Gradient norms that are not finite, but for steps that a float16 run skipped for just that."""
    name = find_metric(run, NORMS)
    if name is None:
        return
    norms, skipped = axis.curve(run.series[name], last), _skips(axis.curve(run.series.get(SKIPPED, {}), last))
    odd = [step for step, value in norms.items() if not math.isfinite(value) and step not in skipped]
    if odd:
        yield f"{run.name}: {name} is {norms[odd[0]]} {_where(odd)}"


def metric_alarms(metrics: tuple[MetricError, ...], a: LoggedRun, b: LoggedRun) -> Iterator[str]:
    """Final metrics that cannot be right."""
    for metric in metrics:
        for run, value in ((a, metric.a), (b, metric.b)):
            if not math.isfinite(value):
                yield f"{run.name}: {metric.name} is {value} at {metric.where}"
            elif value == 0 and metric.name.casefold().endswith("loss"):
                yield f"{run.name}: {metric.name} is exactly 0 at {metric.where}"


def length_alarms(
    runs: tuple[LoggedRun, LoggedRun], losses: tuple[Curve, Curve], axes: Axes, wanted: int | None
) -> Iterator[str]:
    """Runs that have no step in common, or did not get as far as they were to, or as the other one."""
    (a, b), (loss_a, loss_b) = runs, losses
    if broken := [run.name for run in runs if not run.series]:
        yield from (f"{name} broke off before its first step gave a number" for name in broken)
        return
    if not loss_a.keys() & loss_b.keys():
        yield f"the runs have no step in common: {a.name} has {_span(loss_a)}, {b.name} {_span(loss_b)}"
        return
    late = max(max(loss) for loss in losses)
    for run, loss, axis in zip(runs, losses, (axes.a, axes.b), strict=True):
        own = None if run.asked_steps is None else run.asked_steps + axis.shift
        last, asked = max(loss), own if wanted is None else wanted
        if asked is not None and last + _interval(loss) <= asked:
            yield f"{run.name} ends at step {last}, and was to make {asked}"
        elif last + _interval(loss) <= late:
            asks_less = f"--steps {last} compares this far"
            yield f"{run.name} ends at step {last}, and the other one at {late}: {_common(losses)} ({asks_less})"


def notes_of(
    runs: tuple[LoggedRun, LoggedRun],
    losses: tuple[Curve, Curve],
    axes: Axes,
    facts: Comparability,
    metrics: tuple[MetricError, ...],
) -> Iterator[str]:
    """What a reader should know of a comparison."""
    a, b = runs
    yield from [*a.remarks, *b.remarks, *axes.notes]
    for fact in facts.preventing:
        yield f"compared although they differ in {fact.label}: {word(fact.a)} and {word(fact.b)}"
    common, fewer = len(losses[0].keys() & losses[1].keys()), min(map(len, losses))
    if 0 < common < FEW * fewer:
        yield f"they record different steps: {_common(losses)}"
    for metric in metrics:
        if metric.is_absolute:
            yield f"{metric.name} of {b.name} is 0, where a relative error is not defined: its error is absolute"
        if " and " in metric.where:
            yield f"{metric.name} was not measured at the same place: at {metric.where}"
    for name, lonely in lonely_metrics(a, b).items():
        if lonely:
            yield f"only {name} has {', '.join(lonely[:8])}"
    if not metrics and all(losses):
        yield "they have no final metric in common: the losses alone are compared"


def _skips(counts: Mapping[int, float]) -> set[int]:
    """Steps at which more had been skipped than at the one before."""
    before, found = 0.0, set()
    for step, value in counts.items():
        if value > before:
            found.add(step)
        before = value
    return found


def _where(steps: list[int]) -> str:
    return f"at step {steps[0]}" if len(steps) == 1 else f"at {len(steps)} steps, first at step {steps[0]}"


def _span(loss: Curve) -> str:
    return f"steps {min(loss)} to {max(loss)}" if loss else "none"


def _interval(loss: Curve) -> int:
    """How far the last two recorded steps are apart: a run may have ended that much later."""
    steps = list(loss)
    return steps[-1] - steps[-2] if len(steps) > 1 else 1


def _common(losses: tuple[Curve, Curve]) -> str:
    both = losses[0].keys() & losses[1].keys()
    return f"{len(both)} steps are common, of {len(losses[0])} and {len(losses[1])}"
