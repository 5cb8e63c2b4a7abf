"""A report of runs: what it is made of, and all of it as plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from paddock.reporting.comparison import Beside, beside
from paddock.reporting.curves import RunCurves, chosen_metrics, default_metric, read_curves, shared_names
from paddock.reporting.figures import View, figure_of
from paddock.reporting.listing import RunEntry, describe_run, is_run
from paddock.telemetry.drawing.plots import Plot

MOST_LOOKED_AT = ("train.loss", "val.", "train.grad_norm", "train.lr", "train.tokens_per_second", "train.ips")
MOST_LOOKED_AT_ENDS = ("utilisation", "memory", "loss")
"""What people look at first: how the names of metrics begin or end."""
LESS_LOOKED_AT_ENDS = ("per_device",)


@dataclass(frozen=True)
class Report:
    """Runs, read; and how they are to be shown."""

    names: tuple[str, ...]
    """As their curves are called."""
    runs: tuple[RunCurves, ...]
    entries: tuple[RunEntry | None, ...]
    """What is known of each besides its curves; nothing of a log."""
    metrics: tuple[str, ...]
    are_named: bool
    """Whether somebody named just these metrics."""
    view: View

    def of_loss(self) -> Report:
        """The same of the loss alone."""
        return replace(self, metrics=(default_metric(self.runs),), are_named=True)

    @cached_property
    def beside(self) -> Beside:
        return beside(self.runs)

    @cached_property
    def figures(self) -> list[Plot]:
        """Of the metrics that people look at first, unless they named some."""
        return [figure_of(self.runs, metric, self.view) for metric in self.principal]

    @property
    def principal(self) -> list[str]:
        """Those that people look at first, and all that somebody named."""
        if self.are_named:
            return list(self.metrics)
        found = [metric for metric in self.metrics if is_principal(metric)]
        return found or list(self.metrics)


def is_principal(metric: str) -> bool:
    """Whether a metric is one that people look at first."""
    begins, ends = metric.startswith(MOST_LOOKED_AT), metric.endswith(MOST_LOOKED_AT_ENDS)
    return (begins or ends) and not metric.endswith(LESS_LOOKED_AT_ENDS)


def read_report(names: Sequence[str], wanted: Sequence[str], view: View) -> Report:
    """Read the runs that somebody names; errors say what cannot be shown of them."""
    runs = tuple(read_curves(name) for name in names)
    view.check(runs)
    entries = tuple(describe_run(run.name) if is_run(run.path) else None for run in runs)
    metrics = tuple(chosen_metrics(runs, wanted))
    return Report(tuple(shared_names(list(names))), runs, entries, metrics, bool(wanted), view)


def report_values(report: Report) -> dict[str, Any]:
    """All of a report as plain values; curves of long runs are thinned, and say so."""
    found = report.beside.to_dict()
    curves = []
    for name, run, entry in zip(report.names, report.runs, report.entries, strict=True):
        series = {}
        for metric in report.metrics:
            if metric in run.series:
                points = list(run.series[metric].points())
                series[metric] = {
                    "step": [point.step for point in points],
                    "value": [point.value for point in points],
                    "tokens": [_known(run.place(point, "tokens")) for point in points],
                    "seconds": [_known(point.seconds) for point in points],
                    "records": run.series[metric].count,
                    "is_thinned": run.series[metric].is_thinned,
                }
        restarts = [{"attempt": restart.number, "after_step": restart.step} for restart in run.restarts]
        about = None if entry is None else entry.to_dict()
        curves.append({"name": name, "run": about, "restarts": restarts, "notes": run.remarks, "metrics": series})
    return {"runs": curves, "differences": found["differences"], "same": found["same"], "metrics": found["metrics"]}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
