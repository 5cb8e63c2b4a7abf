"""Whatever moment a crash comes at, a run's newest checkpoint is there, complete, for whoever looks next."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.checkpoint.directory import CheckpointDirectory, find_checkpoint
from paddock.checkpoint.storage import StoredTensors, describe_checkpoint


class PowerCut(BaseException):
    """Nothing that a program can catch: from now on it does nothing any more."""


class Disk:
    """Counts what changes names on the disk, and fails for good at one of these moments."""

    def __init__(self, cut_at: int | None) -> None:
        self.moments, self._cut_at = 0, cut_at

    def moment(self) -> None:
        if self._cut_at is not None and self.moments >= self._cut_at:
            raise PowerCut
        self.moments += 1

    def watched(self, action: Callable[..., Any]) -> Callable[..., Any]:
        def watch(*arguments: Any, **options: Any) -> Any:
            self.moment()
            return action(*arguments, **options)

        return watch

    def rmtree(self, path: Path, ignore_errors: bool = False) -> None:
        """File by file, the description last: what is half deleted still looks like a checkpoint."""
        for file in sorted(Path(path).glob("*"), key=lambda file: file.name == "checkpoint.json"):
            self.moment()
            file.unlink()
        if Path(path).is_dir():
            self.moment()
            Path(path).rmdir()


@contextmanager
def disk(cut_at: int | None = None) -> Iterator[Disk]:
    watched = Disk(cut_at)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "replace", "symlink", "mkdir"):
            patch.setattr(os, name, watched.watched(getattr(os, name)))
        patch.setattr(shutil, "rmtree", watched.rmtree)
        yield watched


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"model.weight": torch.full((5,), value)}


def save_again(folder: Path) -> None:
    """Step 2 is there, and is written once more; step 1 goes."""
    checkpoints = CheckpointDirectory(folder, 1, True)
    checkpoints.save(2, tensors(3.0), {"best_step": 2}, True)


def prepare(folder: Path) -> None:
    checkpoints = CheckpointDirectory(folder, None, True)
    checkpoints.save(1, tensors(1.0), {"best_step": 1}, True)
    checkpoints.save(2, tensors(2.0), {"best_step": 2}, True)


def check(folder: Path, newest: Path) -> None:
    assert describe_checkpoint(newest).step == 2
    assert set(StoredTensors(newest, "model.")["weight"].tolist()) in ({2.0}, {3.0})


def test_a_checkpoint_that_is_written_again_is_never_lost(tmp_path: Path) -> None:
    prepare(tmp_path / "counted")
    with disk() as counted:
        save_again(tmp_path / "counted")
    assert counted.moments > 10
    for cut_at in range(counted.moments):
        folder = tmp_path / str(cut_at)
        prepare(folder)
        with pytest.raises(PowerCut), disk(cut_at):
            save_again(folder)
        check(folder, find_checkpoint(folder))  # whoever only reads
        second = 0
        while True:  # the next run, and the power may go again while it cleans up
            try:
                with disk(second):
                    opened = CheckpointDirectory(folder, 1, True)
                break
            except PowerCut:
                check(folder, find_checkpoint(folder))
                second += 1
        newest = opened.latest()
        assert newest == folder / "checkpoints" / "step-00000002"
        check(folder, newest)
        left = {path.name for path in opened.path.iterdir()} - {"step-00000001"}
        assert left == {"step-00000002", "latest", "best"}
        assert {(opened.path / name).resolve().name for name in ("latest", "best")} == {"step-00000002"}


def test_half_a_directory_under_a_name_gives_way(tmp_path: Path) -> None:
    """A copy that was not finished, say: it is no checkpoint, and nothing is lost with it."""
    half = tmp_path / "checkpoints" / "step-00000002"
    half.mkdir(parents=True)
    (half / "shard-00000.safetensors").write_bytes(b"half")
    save_again(tmp_path)
    check(tmp_path, find_checkpoint(tmp_path))
    assert sorted(path.name for path in half.parent.iterdir()) == ["best", "latest", "step-00000002"]
