"""Several runs beside each other: what their recipes, their versions and their devices do not have in common, and what
they reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paddock.alignment.comparison.comparability import CORE, UNKNOWN, word
from paddock.alignment.comparison.logged import run_facts
from paddock.errors import UserError
from paddock.reporting.curves import RunCurves, value_format
from paddock.training.run_directory.files import CONFIG

OWN = ("checkpoint.load", "data_position")
"""Facts that say where a run is, and nothing of what it does."""


@dataclass(frozen=True)
class FactRow:
    """Something that is said of every run."""

    name: str
    label: str
    values: tuple[Any, ...]

    @property
    def differs(self) -> bool:
        return any(value != self.values[0] for value in self.values[1:])

    @property
    def words(self) -> list[str]:
        return ["–" if value == UNKNOWN else word(value) for value in self.values]


@dataclass(frozen=True)
class MetricRow:
    """A metric of every run: the last value, or the best one of the evaluations."""

    name: str
    kind: str
    """last, best, or summary."""
    values: tuple[float | None, ...]
    steps: tuple[int | None, ...]
    shown: tuple[str, ...]
    leader: int | None
    """The run whose value is the best, where one is and the others are worse."""


@dataclass(frozen=True)
class Beside:
    """Runs beside each other."""

    runs: tuple[RunCurves, ...]
    facts: tuple[FactRow, ...]
    metrics: tuple[MetricRow, ...]
    silent: tuple[str, ...]
    """Runs that say nothing of their recipe: logs, and what cannot be read."""

    @property
    def differences(self) -> list[FactRow]:
        return [row for row in self.facts if row.differs]

    @property
    def common(self) -> list[FactRow]:
        """What is the same, of all that people ask for first."""
        return [row for row in self.facts if not row.differs and row.name in CORE]

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": [run.name for run in self.runs],
            "differences": {row.name: list(row.values) for row in self.differences},
            "same": {row.name: row.values[0] for row in self.facts if not row.differs},
            "metrics": [
                {"name": row.name, "kind": row.kind, "values": list(row.values), "steps": list(row.steps)}
                for row in self.metrics
            ],
        }


def beside(runs: Sequence[RunCurves]) -> Beside:
    """Compare any number of runs; one alone is described."""
    facts, silent = [], []
    for run in runs:
        found = facts_of(run)
        facts.append(found)
        if not found:
            silent.append(run.name)
    known = [one for one in facts if one]
    names = [*CORE, *sorted(set().union(*known) - CORE.keys())] if known else []
    rows = [
        FactRow(name, CORE.get(name, name), tuple(one.get(name, UNKNOWN) for one in facts))
        for name in names
        if any(name in one for one in facts) and not name.startswith(OWN)
    ]
    return Beside(tuple(runs), tuple(rows), tuple(_metrics(runs)), tuple(silent))


def facts_of(run: RunCurves) -> dict[str, Any]:
    """What a run directory says of its recipe, its layout, its data, its device and its versions."""
    if not (run.path / CONFIG).is_file():
        return {}
    try:
        return run_facts(run.path)
    except UserError as error:
        run.remarks.append(f"{run.name} does not say what it was: {error.what}")
        return {}


def _metrics(runs: Sequence[RunCurves]) -> list[MetricRow]:
    names = list(dict.fromkeys(name for run in runs for name in run.series))
    rows = []
    for name in sorted(names, key=lambda one: (not one.startswith("train.loss"), not one.startswith("val."))):
        lasts = [run.series[name].last if name in run.series else None for run in runs]
        values = [point.value if point else None for point in lasts]
        if name.startswith("val."):
            best = [run.best.get(name) for run in runs]
            rows.append(
                _row(
                    runs,
                    name,
                    "best",
                    [one[0] if one else None for one in best],
                    [one[1] if one else None for one in best],
                )
            )
        rows.append(_row(runs, name, "last", values, [point.step if point else None for point in lasts]))
    for name in dict.fromkeys(name for run in runs for name in run.summary):
        rows.append(_row(runs, name, "summary", [run.summary.get(name) for run in runs], [None] * len(runs)))
    return rows


def _row(
    runs: Sequence[RunCurves], name: str, kind: str, values: Sequence[float | None], steps: Sequence[int | None]
) -> MetricRow:
    units = {key: unit for run in runs for key, unit in run.units.items()}
    plain = name.replace("summary.", "train.")
    show = value_format(plain, units)
    shown = tuple("–" if value is None else show(value) for value in values)
    return MetricRow(name, kind, tuple(values), tuple(steps), shown, _leader(runs, name, values))


def _leader(runs: Sequence[RunCurves], name: str, values: Sequence[float | None]) -> int | None:
    """Of what was measured on held-out data, and of the training loss."""
    known = [(value, place) for place, value in enumerate(values) if value is not None and value == value]
    if len(known) < 2 or not (name.startswith("val.") or name == "train.loss"):
        return None
    ordered = sorted(known, reverse=not runs[0].is_minimized(name))
    return ordered[0][1] if ordered[0][0] != ordered[1][0] else None
