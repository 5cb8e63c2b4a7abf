"""What a run directory's files are called, and what its environment says. No torch: readers need only the names."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from pydantic import Field

from paddock.documents import Document, read_document
from paddock.errors import DataError

CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
ATTEMPTS = "attempts"
LOG = "log.txt"
LOCK = ".lock"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "spiece.model", "classes.json")
WRITTEN = (CONFIG, ENVIRONMENT, METRICS, LOG, *TOKENIZERS)
"""Files that a run writes or goes on with, itself or through its tokenizer."""
LARGEST = 2**24
"""Bytes of a description: they have a few thousand."""


def check_files(run: Path) -> None:
    """DataError, where something else has the name of a file that a run writes: a folder cannot be written over, and a
    pipe would be waited for."""
    for name in WRITTEN:
        check_file(run / name)


def check_file(path: Path) -> None:
    """The same of one of them."""
    try:
        kind = path.stat().st_mode
    except OSError:  # not there yet; or a link that leads nowhere, of which whoever opens it tells
        return
    if not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "a pipe" if stat.S_ISFIFO(kind) else "a socket or a device"
        fix = "move it away, or take the file from a copy of the run"
        raise DataError(f"{path} is {what}, and not a file", why="a run writes there", fix=fix)


class Processes(Document):
    """How many processes a run had."""

    nproc_per_node: int = Field(1, ge=1)
    nnodes: int = Field(1, ge=1)
    threads: int | None = None


class Environment(Document):
    """What a run keeps of how it was started, and of what it found. Older ones say less."""

    recipe: str | None = None
    """What it was called when the attempt began: a recipe, or the run that went on."""
    processes: Processes = Processes()
    device: str | None = None
    """On which it computed."""
    total_steps: int | None = None
    """How many it was to make."""
    data_position: dict[str, int | str] | None = None
    """By recipe field, or in words, what its sample numbers stand for."""


def read_environment(run: Path) -> Environment:
    """What a run directory says of its environment; of one that says nothing, what is usual."""
    path = run / ENVIRONMENT
    return read_document(path, Environment, max_bytes=LARGEST) if path.is_file() else Environment()


def read_versions(run: Path) -> dict[str, str]:
    """The versions that a run was made with, by the names of what they are of."""
    path = run / ENVIRONMENT
    said = read_document(path, dict[str, Any], max_bytes=LARGEST) if path.is_file() else {}
    return {name: value for name, value in said.items() if isinstance(value, str) and name not in ("device", "recipe")}
