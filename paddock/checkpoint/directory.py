"""The checkpoints of a run: `step-00000100`, …, and the names `latest` and `best` that point at two of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.storage import is_checkpoint, write_checkpoint
from paddock.errors import DataError
from paddock.files import disk_errors, replace_link


class CheckpointDirectory:
    """Writes a run's checkpoints and keeps as many as asked."""

    def __init__(self, run_dir: Path, keep: int | None, leads: bool) -> None:
        self.path = run_dir / FOLDER
        self._keep = keep
        self._leads = leads

    def save(self, step: int, tensors: Mapping[str, Tensor], description: Mapping[str, Any], best: bool) -> Path:
        """Write one checkpoint (all processes together), then move the names and drop the old ones."""
        path = self.path / f"step-{step:08d}"
        write_checkpoint(path, tensors, {"step": step, **description})
        if self._leads:
            with disk_errors(path):
                replace_link(self.path / "latest", path.name)
                if best:
                    replace_link(self.path / "best", path.name)
                self._tidy()
        return path

    def latest(self) -> Path | None:
        """The newest complete checkpoint, if there is one."""
        steps = self._steps()
        return steps[-1] if steps else None

    def _steps(self) -> list[Path]:
        return sorted(path for path in self.path.glob("step-*") if is_checkpoint(path))

    def _tidy(self) -> None:
        """Drop all but the newest ones, and what a crash left half written."""
        for partial in self.path.glob(".*.partial"):
            if partial.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
        if self._keep is None:
            return
        best = (self.path / "best").resolve()
        for path in self._steps()[: -self._keep]:
            if path != best:
                shutil.rmtree(path, ignore_errors=True)


def find_checkpoint(source: str | Path) -> Path:
    """The checkpoint that a run directory, its checkpoints folder, or a checkpoint's own path stands for."""
    path = Path(source).expanduser()
    if is_checkpoint(path):
        return path.resolve()
    for folder in (path / FOLDER, path):
        steps = sorted(step for step in folder.glob("step-*") if is_checkpoint(step)) if folder.is_dir() else []
        if steps:
            return steps[-1].resolve()
    if not path.exists():
        raise DataError(f"there is no {path}", fix="give a run directory, a checkpoint or a Hugging Face folder")
    raise DataError(
        f"{path} holds no checkpoint",
        why="a run directory has checkpoints/step-…, and a checkpoint has a checkpoint.json",
        fix="check the path; a run that was stopped before its first step has nothing to load",
    )
