"""What checkpoints are called on a disk: which are complete, and what a crash leaves behind. No torch: readers of run
directories need only the names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

DESCRIPTION = "checkpoint.json"
PARTIAL = ".{}.partial"
"""What a directory is called before it is complete, and what whatever may be deleted is called."""
REPLACED = ".{}.replaced"
"""What a complete checkpoint is called while another one takes its name: a directory cannot replace one that is not
empty in one step, so between two renames this is the only complete copy, and counts as such."""


def is_checkpoint(path: Path) -> bool:
    """Whether a directory is a complete checkpoint of ours."""
    return (path / DESCRIPTION).is_file()


def remove_checkpoint(path: Path) -> None:
    """Delete a directory, if it is there; a crash on the way leaves no half of it under its name."""
    if path.exists():
        trash = path.with_name(PARTIAL.format(f"{path.name}.old"))
        shutil.rmtree(trash, ignore_errors=True)
        os.rename(path, trash)
        shutil.rmtree(trash, ignore_errors=True)


def complete_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints `step-…` in a folder, by their step; also one that a crash caught while it was replaced."""
    found = {path.name: path for path in folder.glob("step-*") if is_checkpoint(path)}
    for path in folder.glob(REPLACED.format("step-*")):
        found.setdefault(_name_before(path), path)
    return [found[name] for name in sorted(found)]


def real_place(path: Path) -> Path:
    """Where a path leads; unlike `Path.resolve`, of a link that leads to itself, too: to that link."""
    return Path(os.path.realpath(path))


def restore_replaced(folder: Path) -> None:
    """Give checkpoints that a crash left without their name this name back. For one process, before others look."""
    for path in folder.glob(REPLACED.format("*")):
        named = path.with_name(_name_before(path))
        if is_checkpoint(named):
            remove_checkpoint(path)
        else:
            remove_checkpoint(named)
            os.rename(path, named)


def remove_partial(folder: Path) -> None:
    """Delete what crashes left half written or half deleted."""
    for path in folder.glob(PARTIAL.format("*")):
        if path.is_symlink():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path, ignore_errors=True)


def _name_before(replaced: Path) -> str:
    return replaced.name.removeprefix(".").removesuffix(".replaced")
