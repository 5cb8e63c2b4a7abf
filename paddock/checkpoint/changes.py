"""What a run that goes on does otherwise than the one that wrote its checkpoint: `optimizer.lr 0.002 → 0.0005`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

BEGINNING = {f"checkpoint.{name}" for name in ("load", "weights_only", "resume", "allow_changes")}
"""Fields that say where a run begins, and nothing of what it does."""


def list_changes(
    before: tuple[Mapping[str, Any], Mapping[str, int | str]],
    now: tuple[Mapping[str, Any], Mapping[str, int | str]],
    home: Path,
) -> list[str]:
    """A line for every difference between two pairs of a recipe and what its data position means. `home` is the run
    that the checkpoint is of: its tokenizer, found there, is the same one."""
    (old, old_position), (new, new_position) = before, now
    there, here = dict(dotted_fields(old)), dict(dotted_fields(new))
    if any(str(value).startswith(str(home)) for name, value in here.items() if name.startswith("tokenizer.")):
        here = {name: value for name, value in here.items() if not name.startswith("tokenizer.")}
    names = [name for name in here if name in there and name not in BEGINNING]  # newer fields had no other value
    there |= {name: value for name, value in old_position.items() if name not in names}
    here |= {name: value for name, value in new_position.items() if name not in names}
    names += [name for name in new_position if name in old_position and name not in names]
    return [f"{name} {_word(there[name])} → {_word(here[name])}" for name in names if there[name] != here[name]]


def dotted_fields(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field by its dotted name."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from dotted_fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
