"""The curves of a run, read as a stream: every metric by step, by tokens seen and by time, with the places where the
run went on after a stop. A million records take no more memory than a thousand (`telemetry/series.py`).

Steps that were done again count once, as the last attempt found them. Logs of other programs are read, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paddock.alignment.comparison.logged import as_number, printable
from paddock.errors import DataError, bad_value, nearest
from paddock.files import user_path
from paddock.reporting.listing import named_run
from paddock.telemetry import format as show
from paddock.telemetry.jsonl import ATTEMPT
from paddock.telemetry.logfile import general
from paddock.telemetry.logs import LogFile
from paddock.telemetry.records import Record, metrics_of
from paddock.telemetry.series import NOWHERE, Point, Series
from paddock.training.run_directory.files import METRICS

Axis = Literal["step", "tokens", "time"]
AXES: tuple[Axis, ...] = ("step", "tokens", "time")
RATE, STEP_TIME = "train.tokens_per_second", "train.step_time"
SMALLER_IS_BETTER = ("loss", "perplexity", "error", "time", "bits_per_byte")
SMOOTHING = 0.04
"""Of a run: the window of its smoothed curves, where nobody says how long."""
FARTHEST = 1e19
"""Of steps, tokens and seconds: what is beyond is nothing that was counted."""
MOST_METRICS = 200
"""Of a log: more are no metrics but a mistake, and would fill the memory."""


@dataclass(frozen=True)
class Restart:
    """Where an attempt after the first one goes on."""

    number: int
    step: int
    tokens: float
    seconds: float


@dataclass
class RunCurves:
    """What a run has recorded."""

    name: str
    path: Path
    series: dict[str, Series] = field(default_factory=dict)
    restarts: list[Restart] = field(default_factory=list)
    goals: dict[str, str] = field(default_factory=dict)
    """MINIMIZE or MAXIMIZE, by metric."""
    units: dict[str, str] = field(default_factory=dict)
    best: dict[str, tuple[float, int]] = field(default_factory=dict)
    """The best value of every metric of an evaluation, and its step."""
    summary: dict[str, float] = field(default_factory=dict)
    records: int = 0
    remarks: list[str] = field(default_factory=list)
    tokens_per_step: float = NOWHERE
    """When they were first counted; the first steps of a run are not timed."""

    def place(self, point: Point, axis: Axis) -> float:
        """Where a point is on an axis; nan, if that is not known."""
        if axis == "step":
            return point.step
        if axis == "time":
            return point.seconds
        return point.step * self.tokens_per_step if math.isnan(point.tokens) else point.tokens

    def has(self, axis: Axis) -> bool:
        """Whether its metrics can be shown over this."""
        last = max((one.last for one in self.series.values() if one.last), key=lambda point: point.step, default=None)
        return last is not None and abs(self.place(last, axis)) < FARTHEST

    def points(self, metric: str, axis: Axis, window: float | None = None) -> dict[float, float]:
        """A metric over an axis, smoothed over a window of steps if there is one."""
        series = self.series.get(metric)
        if series is None:
            return {}
        kept = series.points() if window is None else series.smoothed(window)
        return {x: point.value for point in kept if abs(x := self.place(point, axis)) < FARTHEST}

    @property
    def last_step(self) -> int:
        return max((one.last.step for one in self.series.values() if one.last), default=0)

    def is_minimized(self, metric: str) -> bool:
        goal = self.goals.get(metric)
        return goal == "MINIMIZE" if goal else metric.rpartition(".")[2].endswith(SMALLER_IS_BETTER)


class NoCurves(DataError):
    """A run, or a log, in which nothing has been recorded yet."""


def read_curves(name: str) -> RunCurves:
    """All curves of the run, or of the log, that somebody names."""
    path = user_path(name)
    if path.is_file():
        return _read(RunCurves(name, path), path)
    run = named_run(name)
    if not (run / METRICS).is_file():
        raise NoCurves(f"{name} has no curves", why=f"it has no {METRICS}: it was stopped before its first step")
    return _read(RunCurves(name, run), run / METRICS)


def _read(run: RunCurves, path: Path) -> RunCurves:
    log, reader = LogFile(path), CurveReader(run)
    for record in log:
        reader.take(record)
    run.remarks = log.remarks
    if not run.series:
        raise NoCurves(f"{run.name} has no curves", why="no record in it has a number and a step")
    return run


@dataclass(frozen=True, slots=True)
class _Known:
    """A metric of a log, looked up once."""

    name: str
    series: Series
    is_validation: bool


class CurveReader:
    """Takes the records of a log, one after the other, and knows how far the run is."""

    def __init__(self, run: RunCurves) -> None:
        self._run = run
        self._step, self._epoch, self._before_epoch = 0, 0, 0
        self._seconds = NOWHERE
        self._begun: float | None = None
        self._known: dict[str, _Known] = {}
        """By the metrics' names as they are spelled."""
        self._tokens, self._counted, self._rate = 0.0, 0, NOWHERE
        """Tokens up to the step where they were counted last, and how many a step takes."""

    def take(self, record: Record) -> None:
        self._note_time(record)
        if record["type"] == "METADATA":
            self._describe(record["metric"], record["metadata"])
        elif record["type"] == "LOG" and "label" not in record:
            data = {
                name: number for name, said in metrics_of(record).items() if (number := as_number(said)) is not None
            }
            steps = record.get("step", [])
            if steps:
                self._move(steps, data)
                self._add(data)
            else:
                self._run.summary |= {printable(name): value for name, value in data.items()}
            self._run.records += 1

    def _note_time(self, record: Record) -> None:
        if (elapsed := record.get("elapsedtime")) is not None:
            self._seconds = elapsed
        elif (now := record.get("timestamp")) is not None:
            self._begun = now if self._begun is None else self._begun
            self._seconds = now - self._begun

    def _describe(self, metric: str, said: Mapping[str, Any]) -> None:
        run = self._run
        if metric == ATTEMPT:
            after = int(said["after_step"])
            if said["number"] > 1:
                run.restarts.append(Restart(int(said["number"]), after, self._tokens_at(after), self._seconds))
            return
        run.goals |= {metric: str(said["GOAL"])} if "GOAL" in said else {}
        run.units |= {metric: str(said["unit"])} if "unit" in said else {}

    def _move(self, steps: Sequence[int], data: Mapping[str, float]) -> None:
        """To the step of a record. A log that counts anew in every epoch is counted on."""
        epoch = steps[0] if len(steps) > 1 else 0
        if epoch > self._epoch and steps[-1] + self._before_epoch <= self._step:
            self._before_epoch = self._step
        self._epoch, self._step = epoch, steps[-1] + self._before_epoch
        if RATE in data and STEP_TIME in data:
            self._rate = data[RATE] * data[STEP_TIME]
            if math.isnan(self._run.tokens_per_step):
                self._run.tokens_per_step = self._rate
            self._tokens += max(self._step - self._counted, 0) * self._rate
            self._counted = self._step

    def _tokens_at(self, step: int) -> float:
        return self._tokens + (step - self._counted) * self._rate

    @property
    def here(self) -> Point:
        """Where the run is, with no value."""
        return Point(self._step, NOWHERE, self._tokens_at(self._step), self._seconds)

    def _add(self, data: Mapping[str, float]) -> None:
        step, tokens = self._step, self._tokens_at(self._step)
        for spelled, value in data.items():
            known = self._known.get(spelled) or self._new(spelled)
            known.series.add(Point(step, value, tokens, self._seconds))
            if known.is_validation and math.isfinite(value):
                self._note_best(known.name, value, step)

    def _new(self, spelled: str) -> _Known:
        """A metric that was not there before."""
        run, name = self._run, printable(spelled)
        if len(run.series) == MOST_METRICS:
            raise DataError(f"{run.path} has more than {MOST_METRICS} metrics", fix="give a log of fewer")
        known = _Known(name, run.series.setdefault(name, Series()), name.startswith("val."))
        self._known[spelled] = known
        return known

    def _note_best(self, name: str, value: float, step: int) -> None:
        best = self._run.best.get(name)
        better = best is None or (value < best[0] if self._run.is_minimized(name) else value > best[0])
        if better:
            self._run.best[name] = value, step


def shared_names(names: Sequence[str]) -> list[str]:
    """Short names that still tell runs apart: without the folders that all are in."""
    parts = [Path(name.rstrip("/")).parts for name in names]
    shortest = min(map(len, parts))
    common = next((at for at in range(shortest - 1) if len({one[at] for one in parts}) > 1), shortest - 1)
    return [str(Path(*one[common:])) for one in parts]


def chosen_metrics(runs: Sequence[RunCurves], wanted: Sequence[str]) -> list[str]:
    """The metrics that somebody named, or all that some run has, in the order of interest."""
    known = list(dict.fromkeys(name for run in runs for name in run.series))
    for name in wanted:
        if name not in known:
            raise bad_value("--metric", name, "no run has it", nearest(name, known) or f"they have: {', '.join(known)}")
    return list(wanted) or sorted(known, key=lambda name: (_interest(name), known.index(name)))


_FIRST = ("train.loss", "val.", "train.grad_norm", "train.lr", RATE, "train.ips", "train.utilisation", "train.memory")


def _interest(metric: str) -> int:
    return next((place for place, begin in enumerate(_FIRST) if metric.startswith(begin)), len(_FIRST))


def default_metric(runs: Sequence[RunCurves]) -> str:
    """The loss, where one is called so; else the first one that there is."""
    names = chosen_metrics(runs, [])
    return next((name for name in names if "loss" in name.casefold()), names[0])


def value_format(metric: str, units: Mapping[str, str]) -> Callable[[float], str]:
    """How the numbers of a metric are shown."""
    unit = units.get(metric, "")
    if unit == "bytes":
        return show.bytes_
    if unit == "s":
        return show.duration
    if unit.endswith("/s"):
        return show.flops if unit == "FLOP/s" else show.rate
    if metric.endswith("utilisation"):
        return show.percent
    if metric.rpartition(".")[2] == "lr":
        return lambda rate: f"{rate:.3g}"
    return general


def tick_format(metric: str, units: Mapping[str, str]) -> Callable[[float], str]:
    """The same for the ends of an axis, where round numbers stand."""
    shown = value_format(metric, units)
    return (lambda value: f"{value:.4g}") if shown is general else shown


def axis_format(axis: Axis) -> Callable[[float], str]:
    """How the places of an axis are named."""
    if axis == "time":
        return lambda seconds: show.duration(round(seconds))
    return lambda number: f"{int(number):,}" if number < 100_000 else show.count(number)


def common_axes(runs: Sequence[RunCurves]) -> Iterator[Axis]:
    """The axes over which every run can be shown."""
    yield from (axis for axis in AXES if all(run.has(axis) for run in runs))
