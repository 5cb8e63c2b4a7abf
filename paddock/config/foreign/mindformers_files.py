"""MindFormers' YAML: a file with what its `base_config` files say beneath it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from paddock.config.plain_yaml import read_plain_yaml
from paddock.errors import ConfigError, bad_value, shown
from paddock.files import user_path

BASE = "base_config"
MARKS = (BASE, "runner_config", "runner_wrapper", "train_dataset_task", "parallel_config", "recompute_config")
"""Sections that no recipe has."""
MOST_BASES = 64
"""Files that one config is made of."""


def is_mindformers(values: Any) -> bool:
    """Whether a YAML file is a config of MindFormers."""
    return isinstance(values, dict) and any(mark in values for mark in MARKS)


def read_mindformers(path: Path) -> dict[str, Any]:
    """The sections of a file. As there: of two base files that have the same section the later one counts, whole; what
    the file itself says is merged into that, key by key."""
    return _read(path.resolve(), (), [0])


def _read(path: Path, trail: tuple[Path, ...], count: list[int]) -> dict[str, Any]:
    if path in trail:
        circle = " → ".join(place.name for place in (*trail[trail.index(path) :], path))
        raise ConfigError(f"base_config goes in a circle: {circle}", fix="remove one of them")
    count[0] += 1
    if count[0] > MOST_BASES:
        raise ConfigError(f"{trail[0]} is made of more than {MOST_BASES} files", fix="write some of them into one")
    values = read_plain_yaml(path, "a MindFormers config")
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a MindFormers config", why="it has no sections")
    named = values.pop(BASE, [])
    bases = [named] if isinstance(named, str) else named
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise bad_value(f"{path.name}: {BASE}", named, "it is a list of files", f"{BASE}: ['./model.yaml']")
    below: dict[str, Any] = {}
    for base in bases:
        below |= _read(_beside(path, base), (*trail, path), count)
    return _merged(below, values)


def _beside(path: Path, base: str) -> Path:
    place = path.parent / user_path(base)
    if not os.path.isfile(place):  # False also for what can be no name of a file
        raise ConfigError(
            f"{path.name}: {BASE} names {shown(base)}, which is not there",
            why=f"it is looked for at {shown(place)}",
            fix="copy the config with the files that it stands on, in their folders",
        )
    return place.resolve()


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged
