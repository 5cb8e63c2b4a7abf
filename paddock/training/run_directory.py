"""The run directory: made once, described by its config, its environment and its tokenizer."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock import __version__
from paddock.checkpoint.config import FOLDER
from paddock.config.load import save_recipe
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, DataError
from paddock.files import atomic_write, disk_errors

if TYPE_CHECKING:
    from paddock.tasks.task import Prepared

CONFIG = "config.yaml"
CLASSES = "classes.json"
"""The names of the classes that a model tells apart, by their number."""


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


def make_run_dir(path: Path, recipe: Recipe, prepared: Prepared, command: list[str]) -> None:
    """Create the directory and write what describes the run."""
    with disk_errors(path):
        (path / FOLDER).mkdir(parents=True, exist_ok=True)
    save_recipe(recipe, path / CONFIG)
    with atomic_write(path / "environment.json") as stream:
        json.dump({"command": command, **versions()}, stream, indent=2)
    if prepared.tokenizer is not None:
        prepared.tokenizer.save(path)
    write_classes(prepared.classes, path)


def write_classes(names: Sequence[str], folder: Path) -> None:
    """Keep the names of classes, if there are any."""
    if names:
        with atomic_write(folder / CLASSES) as stream:
            json.dump(list(names), stream, ensure_ascii=False, indent=0)


def read_classes(folder: Path) -> tuple[str, ...]:
    """What `write_classes` wrote."""
    try:
        names = json.loads((folder / CLASSES).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{folder / CLASSES} is damaged", why=str(error)) from None
    if not isinstance(names, list):
        raise DataError(f"{folder / CLASSES} is damaged", why="it holds no list of names")
    return tuple(map(str, names))


def versions() -> dict[str, Any]:
    """What this run was made with."""
    names = ("torch", "numpy", "tokenizers", "safetensors", "pydantic")
    return {
        "paddock": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        **{name: metadata.version(name) for name in names},
    }
