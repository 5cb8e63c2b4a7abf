"""The checkpoints of a run: `step-00000100`, …, and the names `latest` and `best` that point at two of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from paddock.checkpoint import apart
from paddock.checkpoint.background import BackgroundWriter
from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.names import (
    complete_checkpoints,
    is_checkpoint,
    real_place,
    remove_checkpoint,
    remove_partial,
    restore_replaced,
)
from paddock.checkpoint.shards.blocks import DamagedCheckpoint
from paddock.checkpoint.shards.pieces import Piece
from paddock.checkpoint.storage import describe_checkpoint, plan_pieces, run_together, save_pieces
from paddock.errors import DataError
from paddock.files import disk_errors, nearest_path, replace_link, user_path
from paddock.phases import phase


class CheckpointDirectory:
    """Writes a run's checkpoints, in place or in the background, and keeps as many as asked.

    As a context it waits, at its end, for what is still being written.
    """

    def __init__(self, run_dir: Path, keep: int | None, is_main: bool, asynchronous: bool = False) -> None:
        self.path = run_dir / FOLDER
        self._keep = keep
        self._is_main = is_main
        self._told = False
        self._background = BackgroundWriter() if asynchronous else None
        if is_main:
            restore_replaced(self.path)
            remove_partial(self.path)
            self._repair_links()

    def __enter__(self) -> CheckpointDirectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._background is not None:
            with phase("saving"):
                self._background.close(raises=kind is None)

    def prepare(self, tensors: Mapping[str, Tensor]) -> None:
        """Tell, before the first `save`, what it will be about, so that it takes no longer than the next ones."""
        if self._background is not None:
            self._background.prepare(plan_pieces(tensors))

    def save(
        self,
        step: int,
        tensors: Mapping[str, Tensor],
        description: Mapping[str, Any],
        best: bool,
        copy_now: Collection[str] = (),
    ) -> Path:
        """Write one checkpoint (all processes together), then move the names and drop the old ones.

        In the background, the tensors may change after `wait_for_copy`, those named in `copy_now` at once; an error is
        raised by the next `save` or at the end.
        """
        path = self._path(step)
        content = {"step": step, **description}
        if self._background is None:
            self._write(path, content, best, None, plan_pieces(tensors))
        else:
            self._background.wait()
            self._background.start(partial(self._write, path, content, best), plan_pieces(tensors), copy_now)
        return path

    def wait_for_copy(self) -> None:
        """To be called after `save`, before the tensors change."""
        if self._background is not None:
            self._background.wait_for_copy()

    def latest(self) -> Path | None:
        """The newest complete checkpoint, if there is one."""
        steps = self._steps()
        return steps[-1] if steps else None

    def set_aside(self, path: Path) -> Path:
        """Keep a checkpoint that cannot be read under another name, by which nobody goes on from it. Called by all
        processes together."""
        aside = path.with_name(f"damaged-{path.name}")

        def move() -> None:
            with disk_errors(self.path):
                remove_checkpoint(aside)
                os.rename(path, aside)
            self._repair_links()

        run_together(move if self._is_main else None)
        return aside

    def has_earlier(self, path: Path) -> bool:
        """Whether there is a complete checkpoint before this one."""
        return any(step.name < path.name for step in self._steps())

    def _write(
        self,
        path: Path,
        content: Mapping[str, Any],
        best: bool,
        group: dist.ProcessGroup | None,
        pieces: list[Piece],
    ) -> None:
        places = save_pieces(path, pieces, content, group)
        if self._is_main:
            with disk_errors(path):
                replace_link(self.path / "latest", path.name)
                if best:
                    replace_link(self.path / "best", path.name)
                self._tidy()
        if places:
            self._tidy_apart(path, places, group)

    def _tidy_apart(self, path: Path, places: list[str], group: dist.ProcessGroup | None) -> None:
        """On machines with a storage of their own, too."""
        if self._is_main and not self._told:
            apart.tell(path, places)
            self._told = True
        [names, *_] = run_together(self._names if self._is_main else None, group)
        if not self._is_main and not is_checkpoint(path):
            apart.keep_only(self.path, names)

    def _names(self) -> list[str]:
        return [step.name for step in self._steps()]

    def _path(self, step: int) -> Path:
        return self.path / f"step-{step:08d}"

    def _steps(self) -> list[Path]:
        return complete_checkpoints(self.path)

    def _tidy(self) -> None:
        """Drop all but the newest ones and the best."""
        if self._keep is None:
            return
        best = real_place(self.path / "best")
        for path in [path for path in self._steps() if real_place(path) != best][: -self._keep]:
            remove_checkpoint(path)

    def _repair_links(self) -> None:
        """Point `latest` and `best` at what the newest checkpoint says: a crash may have come between it and them."""
        newest = self.latest()
        if newest is None:
            return
        try:
            best = self._path(describe_checkpoint(newest).best_step)
        except DamagedCheckpoint:  # whoever is to read it says so, on all processes together
            return
        with disk_errors(self.path):
            replace_link(self.path / "latest", newest.name)
            if is_checkpoint(best):  # a run that went on from another's checkpoint may have its best there
                replace_link(self.path / "best", best.name)


def find_checkpoint(source: str | Path) -> Path:
    """The checkpoint that a run directory, its checkpoints folder, or a checkpoint's own path stands for."""
    path = user_path(source)
    if is_checkpoint(path):
        return path.resolve()
    for folder in (path / FOLDER, path):
        steps = complete_checkpoints(folder)
        if steps:
            return steps[-1].resolve()
    if not path.exists():
        usual = "give a run directory, a checkpoint or a Hugging Face folder"
        raise DataError(f"there is no {path}", fix=nearest_path(path) or usual)
    if apart.has_part_only(path):
        raise DataError(
            f"{path} holds a part of a checkpoint only",
            why="the machines that wrote it shared no storage, and its description is on machine 0",
            fix="copy all parts and checkpoint.json together, to every machine that is to load it",
        )
    raise DataError(
        f"{path} holds no checkpoint",
        why="a run directory has checkpoints/step-…, and a checkpoint has a checkpoint.json",
        fix="check the path; a run that was stopped before its first step has nothing to load",
    )
