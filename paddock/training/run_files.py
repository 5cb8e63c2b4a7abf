"""What a run directory's files are called, and what its environment says. No torch: readers need only the names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paddock.documents import Document, read_document

CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
ATTEMPTS = "attempts"
LARGEST = 2**24
"""Bytes of a description: they have a few thousand."""


class Processes(Document):
    """How many processes a run had."""

    nproc_per_node: int = 1
    nnodes: int = 1
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
