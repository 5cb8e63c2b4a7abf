"""What is known of a run that is over: its metrics by step, and the facts that decide what it can be compared with.

A run is a run directory of ours, or a log that anybody wrote (`telemetry/logs.py`). What a log does not say is not in
its facts: it is unknown, which is not the same as equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.checkpoint.changes import dotted_fields, list_changes
from paddock.checkpoint.config import FOLDER
from paddock.config.load import load_recipe, read_values
from paddock.config.rules import arithmetic_of
from paddock.documents import Document, read_document
from paddock.errors import LONGEST_SHOWN, ConfigError, DataError, UserError
from paddock.files import nearest_named, user_path
from paddock.telemetry.logs import LogFile
from paddock.telemetry.records import Record, metrics_of
from paddock.training.run_directory.files import ATTEMPTS, CONFIG, LARGEST, METRICS, read_environment, read_versions
from paddock.versions import redacted

Position = tuple[int, ...]
"""Epoch and step, or one of them, as the log has it; nothing of what belongs to the whole run."""
SPEED = ("ips", "time", "per_second", "per_second_per_device", "flops", "utilisation", "memory", "rank", "epoch")
"""How the names of metrics end that say how a run went, not what came of it."""
PARAMETERS = {
    "seed": "train.seed",
    "manual_seed": "train.seed",
    "lr": "optimizer.lr",
    "learning_rate": "optimizer.lr",
    "global_batch_size": "batch.global",
    "device": "device",
    "optimizer": "optimizer.name",
    "weight_decay": "optimizer.weight_decay",
}
"""What scripts call the facts that a recipe has, too."""


@dataclass
class LoggedRun:
    """A run, as it is recorded."""

    name: str
    form: str
    """What it was read from, in words."""
    facts: dict[str, Any] = field(default_factory=dict)
    """By recipe field, or in words."""
    asked_steps: int | None = None
    """How many it was to make, if that is known."""
    series: dict[str, dict[Position, float]] = field(default_factory=dict)
    """The numbers of every metric but speeds."""
    described: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the log says of its metrics: unit, GOAL, STAGE."""
    repeated: int = 0
    """Numbers that the log has again for the same step; the later one counts."""
    other_ranks: int = 0
    """Records of processes other than the first."""
    remarks: list[str] = field(default_factory=list)
    rank: int | None = None
    """The process whose records these are, where records say so."""
    is_directory: bool = False
    """Whether it is a run directory of ours, so that what its metrics mean is known even where it has none."""

    def add(self, record: Record) -> None:
        """Take what a record says."""
        if record["type"] == "METADATA":
            self.described[printable(record["metric"])] = record["metadata"]
        elif record["type"] == "INFO" or "label" in record:
            self.facts |= parameter_facts(metrics_of(record))
        elif record["type"] == "LOG" and self._is_of_first_rank(metrics_of(record).get("rank")):
            self._add_metrics(tuple(record.get("step", ())[:2]), metrics_of(record))

    def _is_of_first_rank(self, said: Any) -> bool:
        """Ranks that write into one file each have their own part of a batch: the lowest one's numbers are kept."""
        rank = as_number(said)
        if rank is None and isinstance(said, str):
            rank = float(said) if said.isdecimal() and len(said) < 10 else None
        if rank is None or not rank.is_integer() or rank == self.rank:
            return True
        if self.rank is not None:
            self.other_ranks += 1
        if self.rank is None or rank < self.rank:
            self.rank, self.series = int(rank), {}
            return True
        return False

    def _add_metrics(self, position: Position, metrics: Mapping[str, Any]) -> None:
        for spelled, said in metrics.items():
            name, value = printable(spelled), as_number(said)
            if value is None or is_speed(name, self.described.get(name, {})):
                continue
            values = self.series.setdefault(name, {})
            self.repeated += bool(position) and position in values
            values[position] = value


def as_number(value: Any) -> float | None:
    """A metric as a float; one that is larger than any is infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def printable(text: str) -> str:
    """A name from a log, without what would steer a terminal or fill it."""
    return "".join(sign if sign.isprintable() else "�" for sign in text[:LONGEST_SHOWN])


def is_speed(name: str, described: Mapping[str, Any]) -> bool:
    """Whether a metric says how fast or how large a run was: runs on other devices differ in that."""
    word = name.casefold().replace("/", ".").rpartition(".")[2]
    unit = str(described.get("unit", ""))
    return unit.endswith(("/s", "/sec")) or any(word == end or word.endswith(f"_{end}") for end in SPEED)


def read_run(name: str) -> LoggedRun:
    """The run that somebody names: a run directory, or a log."""
    path = user_path(name)
    if path.is_dir():
        return _run_directory(name, path)
    if not path.exists():
        runs = sorted(str(config.parent) for config in Path("runs").glob(f"*/{CONFIG}"))
        fix = nearest_named(name, runs) or "give a run directory, a dllogger file or a CSV"
        raise DataError(f"there is no run and no log {name}", fix=fix)
    return _read_log(LoggedRun(name, ""), path)


def _run_directory(name: str, path: Path) -> LoggedRun:
    if not (path / METRICS).is_file():
        is_run = (path / CONFIG).is_file()
        why = f"it has no {METRICS}: it was stopped before its first step" if is_run else f"it has no {METRICS}"
        raise DataError(f"{name} is no run that could be compared", why=why, fix="give a run directory, or a log file")
    run = LoggedRun(name, "")
    if (path / CONFIG).is_file():
        environment = read_environment(path)
        run.facts, run.asked_steps = run_facts(path), environment.total_steps
        if run.asked_steps is None:
            run.asked_steps = run.facts.get("train.steps")
        run.remarks += _changes_on_the_way(path)
    run = _read_log(run, path / METRICS)
    run.form, run.is_directory = "a Paddock run", True
    return run


def _read_log(run: LoggedRun, path: Path) -> LoggedRun:
    log = LogFile(path)
    run.form = log.form
    for record in log:
        run.add(record)
    run.remarks += log.remarks
    if run.repeated:
        run.remarks.append(f"numbers that {run.name} has again for the same step, and that count: {run.repeated}")
    if run.other_ranks:
        run.remarks.append(f"{run.name} has records of several ranks: those of rank {run.rank} count")
    return run


def run_facts(run: Path) -> dict[str, Any]:
    """What a run directory says of what was computed: its recipe, what followed from it, its data, its versions."""
    recipe, environment = load_recipe(run / CONFIG), read_environment(run)
    facts = dict(dotted_fields(recipe.to_dict()))
    del facts["batch.global"], facts["train.device"]
    counts = environment.processes
    try:
        numbers = arithmetic_of(recipe, counts.nproc_per_node * counts.nnodes)
        facts |= {"batch.global": numbers.batch.total, "layout": str(numbers.layout)}
    except ConfigError:  # a copy whose environment is another's: what does not follow is unknown
        pass
    facts |= read_versions(run) | (environment.data_position or _position_of_checkpoint(run))
    device = environment.device or recipe.train.device
    return facts if device == "auto" else facts | {"device": device}


class _SavedPosition(Document):
    """What a checkpoint says of its data; the rest of it needs torch to be read."""

    data_position: dict[str, int | str] | None = None


def _position_of_checkpoint(run: Path) -> dict[str, int | str]:
    """Runs from before environments said it have it in their checkpoints."""
    try:
        saved = read_document(run / FOLDER / "latest" / "checkpoint.json", _SavedPosition, max_bytes=LARGEST)
    except DataError:
        return {}
    return saved.data_position or {}


def _changes_on_the_way(run: Path) -> list[str]:
    """What a run that went on did otherwise than before."""
    numbers = sorted(int(entry.name) for entry in (run / ATTEMPTS).glob("*") if entry.name.isdecimal())
    configs = [run / ATTEMPTS / str(number) / CONFIG for number in numbers]
    found = []
    for number, before, now in zip(numbers[1:], configs, configs[1:], strict=False):
        try:
            changes = list_changes((read_values(before), {}), (read_values(now), {}), run)
        except UserError:  # it is the newest that counts, and that one was read
            continue
        if changes:
            found.append(f"{run} went on otherwise in its attempt {number}: {', '.join(changes)}")
    return found


def parameter_facts(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What a script said that it was started with, by the names of recipe fields where there are such; no secrets."""
    facts: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, str | int | float | bool):
            _, _, shown = redacted([f"--{name}={value}"])[0].partition("=")
            is_plain = shown == str(value) and not isinstance(value, str)
            facts[PARAMETERS.get(name, printable(name))] = value if is_plain else printable(shown)
    return facts
