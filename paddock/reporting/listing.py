"""The runs below a folder, each described by a few numbers from the ends of its files. No torch, and no file is read
whole that grows with a run: a list of a hundred runs comes at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from paddock.alignment.comparison.logged import printable
from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.names import DESCRIPTION, complete_checkpoints
from paddock.config.flags.translation import take_recipe
from paddock.config.load import read_values
from paddock.documents import Document, Natural, read_document, shape_json
from paddock.errors import ConfigError, DataError, UserError
from paddock.files import nearest_named, user_path
from paddock.telemetry import format as show
from paddock.telemetry.jsonl import ATTEMPT, AttemptBegins, read_tail
from paddock.telemetry.logfile import general
from paddock.telemetry.records import Record, metrics_of
from paddock.training.run_directory.files import ATTEMPTS, CONFIG, ENVIRONMENT, LARGEST, METRICS, read_environment
from paddock.training.run_directory.lock import LOCK, Holder, is_held

State = Literal["running", "done", "stopped", "failed", "never began", "damaged"]
STATES: tuple[State, ...] = get_args(State)
SIGNS = (CONFIG, METRICS, ATTEMPTS)
"""What tells that a folder is a run directory; or a lock of ours, of one that was to be one."""
DEEPEST = 4
"""Folders in one another that are looked into."""
SECTIONS = ("model", "train")
"""Of its config, what a list shows something of."""
SPEEDS = {"tokens_per_second": "tokens/s", "ips": "samples/s"}
LARGEST_DESCRIPTION = 2**28


@dataclass(frozen=True)
class RunEntry:
    """A run, as a list shows it."""

    name: str
    """As one would name it to a verb: its path."""
    state: State
    why: str = ""
    """What is damaged."""
    recipe: str = ""
    family: str = ""
    task: str = ""
    step: int = 0
    total_steps: int | None = None
    loss: float | None = None
    measure: str = ""
    """The metric that decides which checkpoint is the best."""
    best: float | None = None
    best_step: int | None = None
    speed: float | None = None
    speed_unit: str = ""
    attempts: int = 0
    bytes: int = 0
    changed: float = 0.0
    """When something was written last, in seconds since 1970."""

    @property
    def path(self) -> Path:
        return user_path(self.name)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class SavedBest(Document):
    """What a checkpoint says of the run's best evaluation; the rest of it is for those who load it."""

    step: Natural
    best: dict[str, float]
    best_step: Natural
    best_of: dict[str, int | str] = {}  # noqa: RUF012 - pydantic copies it

    @property
    def measure(self) -> str:
        """The metric that decides; older checkpoints do not say, and it is the first."""
        return str(self.best_of.get("measure", next(iter(self.best), "")))


def is_run(path: Path) -> bool:
    """Whether a folder is a run directory, whole or damaged."""
    if any(os.path.lexists(path / sign) for sign in SIGNS):
        return True
    try:
        return (path / LOCK).is_file() and bool(read_document(path / LOCK, Holder, max_bytes=LARGEST))
    except DataError:  # others have locks, too
        return False


def cells_of(entry: RunEntry) -> list[str]:
    """What a table says of a run, behind its name: recipe, state, steps, loss, best, speed, size."""
    steps = f"{entry.step:,}" + (f"/{entry.total_steps:,}" if entry.total_steps else "")
    return [
        entry.recipe or "–",
        entry.state,
        "–" if entry.state == "damaged" else steps,
        "–" if entry.loss is None else general(entry.loss),
        "–" if entry.best is None else f"{entry.measure} {general(entry.best)}",
        "–" if entry.speed is None else f"{show.rate(entry.speed)} {entry.speed_unit}",
        show.bytes_(entry.bytes),
    ]


def find_runs(folders: Sequence[str]) -> list[str]:
    """The paths of all runs in folders; a folder may be a run itself."""
    found: dict[str, None] = {}
    for folder in folders:
        path = user_path(folder)
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise DataError(f"{folder} {what}", fix="name a folder that has runs in it, such as runs")
        found |= dict.fromkeys(str(run) for run in _runs_below(path, DEEPEST))
    return list(found)


def _runs_below(path: Path, deepest: int) -> Iterator[Path]:
    if is_run(path):
        yield path
    elif deepest:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        for name in names:
            try:
                yield from _runs_below(path / name, deepest - 1)
            except OSError:  # not ours to read, or gone meanwhile
                continue


def named_run(name: str) -> Path:
    """The run directory that somebody names, or an error that says which there are."""
    path = user_path(name)
    if is_run(path):
        return path
    inside = next((parent for parent in path.absolute().parents if is_run(parent)), None)
    if path.exists() and inside is not None:
        raise ConfigError(f"{name} is in a run, not the run itself", fix=f"name {inside}")
    if path.exists():
        raise ConfigError(
            f"{name} is not a run", why=f"it has no {CONFIG}", fix="`paddock runs list` shows those in runs/"
        )
    places = sorted({str(place) for place in (path.parent, Path("runs")) if place.is_dir()})
    near = nearest_named(name, find_runs(places)) if places else ""
    raise ConfigError(f"there is no run {name}", fix=near or "`paddock runs list` shows those in runs/")


def describe_run(name: str) -> RunEntry:
    """How a run stands. One whose files cannot be believed is described as damaged, with the reason."""
    path = user_path(name)
    try:
        size, changed = size_and_time(path)
    except OSError as error:
        return RunEntry(name, "damaged", why=error.strerror or str(error))
    try:
        return _described(name, path, size, changed)
    except UserError as error:
        why = error.what + (f": {error.why}" if error.why else "")
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
    state: State = "running" if is_held(path) else "damaged"
    return RunEntry(name, state, why=why, bytes=size, changed=changed)


def _described(name: str, path: Path, size: int, changed: float) -> RunEntry:
    held = is_held(path)
    if not (path / CONFIG).is_file():
        if held or not (path / METRICS).exists():  # it has just begun, or ended before anything was written
            return RunEntry(name, "running" if held else "never began", bytes=size, changed=changed)
        raise DataError(f"it has no {CONFIG}")
    values, environment = read_values(path / CONFIG), read_environment(path)
    model, train = (shape_json(values.get(name, {}), dict[str, Any], f"{path / CONFIG}: {name}") for name in SECTIONS)
    asked = train.get("steps")
    total = environment.total_steps or (asked if isinstance(asked, int) else None)
    records = read_tail(path / METRICS) if (path / METRICS).is_file() else []
    last = last_of(records)
    saved = _saved_best(path)
    step = max(last.step, _newest_step(path))
    state: State = "running" if held else _state(step, total, last.has_ended)
    return RunEntry(
        name,
        state,
        recipe=printable(recipe_name(path) or str(model.get("family", ""))),
        family=printable(str(model.get("family", ""))),
        task=printable(str(values.get("task", "language_modeling"))),
        step=step,
        total_steps=total,
        loss=last.loss,
        measure=printable(saved.measure) if saved else "",
        best=saved.best.get(saved.measure) if saved else None,
        best_step=saved.best_step if saved and saved.best else None,
        speed=last.speed,
        speed_unit=last.speed_unit,
        attempts=len(attempt_numbers(path)),
        bytes=size,
        changed=changed,
    )


def _state(step: int, total: int | None, has_ended: bool) -> State:
    """Of a run that no process is at. One that ends in order writes a summary, whether it came to its end or not."""
    if step == 0 and not has_ended:
        return "never began"
    if not has_ended:
        return "failed"
    return "done" if total is not None and step >= total else "stopped"


@dataclass
class LastRecords:
    """What the end of a metrics file says of its run."""

    step: int = 0
    loss: float | None = None
    speed: float | None = None
    speed_unit: str = ""
    has_ended: bool = False
    """Whether the newest attempt ended in order."""


def last_of(records: Sequence[Record]) -> LastRecords:
    """The newest of everything; what a later attempt took back is none of it."""
    found = LastRecords()
    losses: list[tuple[int, Any]] = []
    for record in records:
        if record.get("metric") == ATTEMPT:
            after = shape_json(record.get("metadata"), AttemptBegins, "the record that begins an attempt").after_step
            losses = [(step, loss) for step, loss in losses if step <= after]
            found.step, found.has_ended = after, False
        elif record["type"] == "LOG" and "metric" not in record:
            data, steps = metrics_of(record), record.get("step", [])
            if not steps:
                found.has_ended = True
            elif "train.loss" in data:
                losses.append((steps[-1], data["train.loss"]))
            found.step = max(found.step, steps[-1] if steps else 0)
            for metric, unit in SPEEDS.items():
                value = data.get(f"summary.{metric}", data.get(f"train.{metric}"))
                if isinstance(value, int | float):
                    found.speed, found.speed_unit = value, unit
                    break
    if losses and isinstance(losses[-1][1], int | float):
        found.loss = float(losses[-1][1])
    return found


def recipe_name(path: Path) -> str:
    """The recipe that a run was begun with, as it was named; older runs have it in their first command alone."""
    for folder in (path / ATTEMPTS / "1", path):
        try:
            said = read_document(folder / ENVIRONMENT, _Begun, max_bytes=LARGEST)
            words = said.command
            name = said.recipe or (take_recipe(words[2:])[0] if words[1:2] == ["train"] else None)
        except UserError:
            continue
        if name is not None:
            return Path(name).stem if name.endswith((".yaml", ".yml")) else name
    return ""


class _Begun(Document):
    command: list[str] = []  # noqa: RUF012 - pydantic copies it
    recipe: str | None = None


def attempt_numbers(path: Path) -> list[int]:
    return sorted(int(entry.name) for entry in (path / ATTEMPTS).glob("*") if entry.name.isdecimal())


def _saved_best(path: Path) -> SavedBest | None:
    """Of the newest checkpoint, if there is one."""
    found = complete_checkpoints(path / FOLDER)
    return read_document(found[-1] / DESCRIPTION, SavedBest, max_bytes=LARGEST_DESCRIPTION) if found else None


def _newest_step(path: Path) -> int:
    """By its name: between two records a run may have been stopped, and saved."""
    found = complete_checkpoints(path / FOLDER)
    number = found[-1].name.strip(".").split("-")[1].partition(".")[0] if found else "0"
    return int(number) if number.isdecimal() else 0


def size_and_time(path: Path) -> tuple[int, float]:
    """How many bytes a folder's files have, and when one of them was written last. Links are not followed."""
    size, changed = 0, path.stat().st_mtime
    for folder, _, files in os.walk(path):
        for file in files:
            try:
                found = os.lstat(os.path.join(folder, file))
            except FileNotFoundError:  # a run that is under way replaces its files
                continue
            size, changed = size + found.st_size, max(changed, found.st_mtime)
    return size, changed
