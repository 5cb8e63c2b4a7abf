"""The run directory: made once, described by its config, its environment and its tokenizer."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.storage import describe_checkpoint
from paddock.errors import ConfigError
from paddock.files import atomic_write, disk_errors
from paddock.inference.trained import write_classes
from paddock.telemetry.jsonl import read_metrics
from paddock.versions import redacted, versions

if TYPE_CHECKING:
    from paddock.tasks.task import Prepared

CONFIG = "config.yaml"


def default_run_dir(recipe_name: str) -> Path:
    """`runs/<recipe>-<time>`; a YAML path gives its file name."""
    name = Path(recipe_name).stem if recipe_name.endswith((".yaml", ".yml")) else recipe_name
    return Path("runs") / f"{name.strip('/').replace('/', '-')}-{datetime.now():%Y%m%d-%H%M%S}"


def check_run_dir(path: Path, continues: bool) -> None:
    """A directory that holds a run is only written to by a run that continues it."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--run-dir {path} is a file", fix="choose another name")
    if (path / CONFIG).exists() and not continues:
        raise ConfigError(
            f"{path} already holds a run",
            why="a new run would mix with it",
            fix="continue it with --checkpoint.load auto, or choose another --run-dir",
        )


def make_run_dir(path: Path, recipe: str, prepared: Prepared, command: list[str]) -> None:
    """Create the directory and write what describes the run; `recipe` is its text."""
    with disk_errors(path):
        (path / FOLDER).mkdir(parents=True, exist_ok=True)
    with atomic_write(path / CONFIG) as stream:
        stream.write(recipe)
    with atomic_write(path / "environment.json") as stream:
        json.dump({"command": redacted(command), **versions()}, stream, indent=2)
    if prepared.tokenizer is not None:
        prepared.tokenizer.save(path)
    write_classes(prepared.classes, path)


def outcome_of(run_dir: Path) -> dict[str, Any]:
    """The last step and its loss, the best evaluation and its step, and the averages over the run."""
    loss: float | None = None
    averages: dict[str, float] = {}
    for record in read_metrics(run_dir / "metrics.jsonl"):
        data = record.get("data", {})
        loss = data.get("train.loss", loss)
        averages |= {name: value for name, value in data.items() if name.startswith("summary.")}
    description = describe_checkpoint(find_checkpoint(run_dir))
    return {
        "step": description.step,
        "loss": loss,
        "best": description.best,
        "best_step": description.best_step,
        **{name.removeprefix("summary."): value for name, value in averages.items()},
    }
