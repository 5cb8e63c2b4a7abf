"""The run directory: made once, described by its config, its environment and its tokenizer.

Every time that processes begin to train in it is an attempt: the first, one after a stop or a crash, one that an
elastic agent started anew. Each keeps its config and environment in `attempts/<number>/`; those of the newest are also
at the top.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.names import complete_checkpoints
from paddock.checkpoint.storage import describe_checkpoint
from paddock.documents import read_document
from paddock.errors import ConfigError, DataError
from paddock.files import atomic_write, disk_errors
from paddock.inference.trained import write_classes
from paddock.telemetry.jsonl import metrics_of, read_metrics
from paddock.training.run_directory.files import ATTEMPTS, CONFIG, ENVIRONMENT, METRICS, check_files
from paddock.versions import versions

if TYPE_CHECKING:
    from paddock.tasks.task import Prepared


def name_run_dir(recipe_name: str) -> Path:
    """`runs/<recipe>-<time>`; a YAML path gives its file name."""
    name = Path(recipe_name).stem if recipe_name.endswith((".yaml", ".yml", ".py")) else recipe_name
    return Path("runs") / f"{name.strip('/').replace('/', '-')}-{datetime.now():%Y%m%d-%H%M%S}"


def new_run_dir(recipe_name: str) -> Path:
    """Make a directory that is this run's alone. Of several that begin in the same second, the others get a number."""
    first = name_run_dir(recipe_name)
    with disk_errors(first):
        first.parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            path = first if number == 1 else first.with_name(f"{first.name}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise AssertionError("numbers do not end")


def check_run_dir(path: Path, continues: bool) -> None:
    """A directory that holds a run is only written to by a run that continues it, and only if its files are files."""
    check_files(path)
    if (path / CONFIG).exists() and not continues:
        raise ConfigError(
            f"{path} already holds a run",
            why="a new run would mix with it",
            fix=f"continue it with `paddock resume {path}` or --checkpoint.load auto, or choose another --run-dir",
        )


def make_run_dir(path: Path, recipe: str, prepared: Prepared, environment: Mapping[str, Any]) -> int:
    """Write what describes the run, `recipe` being its text; returns the number of the attempt that begins."""
    with disk_errors(path):
        (path / FOLDER).mkdir(parents=True, exist_ok=True)
    number = begin_attempt(path, recipe, environment)
    if prepared.tokenizer is not None:
        prepared.tokenizer.save(path)
    write_classes(prepared.classes, path)
    return number


def begin_attempt(path: Path, recipe: str, environment: Mapping[str, Any]) -> int:
    """Keep the config and the environment of an attempt that is about to begin; returns its number."""
    folder = path / ATTEMPTS
    numbers = [int(entry.name) for entry in folder.glob("*") if entry.name.isdecimal()]
    with disk_errors(folder):
        if not numbers and (path / CONFIG).exists():  # a run from before attempts were kept
            numbers.append(1)
            (folder / "1").mkdir(parents=True)
            for name in (CONFIG, ENVIRONMENT):
                if (path / name).exists():
                    shutil.copy2(path / name, folder / "1")
        number = max(numbers, default=0) + 1
        (folder / str(number)).mkdir(parents=True)
    for place in (folder / str(number), path):
        with atomic_write(place / CONFIG) as stream:
            stream.write(recipe)
        with atomic_write(place / ENVIRONMENT) as stream:
            json.dump({**environment, **versions()}, stream, indent=2)
    return number


def note_environment(path: Path, attempt: int, found: Mapping[str, Any]) -> None:
    """Add to the environment of the newest attempt what is known only when its processes have begun."""
    for place in (path / ATTEMPTS / str(attempt), path):
        known = _read_environment(place)
        with atomic_write(place / ENVIRONMENT) as stream:
            json.dump({**known, **found}, stream, indent=2)


def earlier_environment(path: Path, attempt: int) -> dict[str, Any]:
    """That of the first attempt, for one that comes later; empty if there is none that can be read."""
    return _read_environment(path / ATTEMPTS / "1") if attempt > 1 else {}


def _read_environment(folder: Path) -> dict[str, Any]:
    try:
        return read_document(folder / ENVIRONMENT, dict[str, Any])
    except DataError:
        return {}


def outcome_of(run_dir: Path) -> dict[str, Any]:
    """The last step and its loss, the best evaluation and its step, and the averages over the run; of one that was
    stopped before its first step, nothing."""
    loss: float | None = None
    averages: dict[str, float] = {}
    for record in read_metrics(run_dir / METRICS):
        data = metrics_of(record)
        loss = data.get("train.loss", loss)
        averages |= {name: value for name, value in data.items() if name.startswith("summary.")}
    has_checkpoint = bool(complete_checkpoints(run_dir / FOLDER))
    description = describe_checkpoint(find_checkpoint(run_dir)) if has_checkpoint else None
    return {
        "step": 0 if description is None else description.step,
        "loss": loss,
        "best": {} if description is None else description.best,
        "best_step": 0 if description is None else description.best_step,
        **{name.removeprefix("summary."): value for name, value in averages.items()},
    }
