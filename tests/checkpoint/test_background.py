"""Checkpoints that are written while training goes on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from paddock.checkpoint import directory
from paddock.checkpoint.background import BackgroundWriter
from paddock.checkpoint.directory import CheckpointDirectory
from paddock.checkpoint.shards.pieces import Piece
from paddock.checkpoint.storage import StoredTensors, read_tensors
from paddock.cli.main import run
from paddock.errors import MachineError
from paddock.testing.processes import wait_for


class Gate:
    """Holds the writing up until it is opened, and then lets it fail if it is to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.error, self.writing = threading.Event(), None, 0
        self._write = directory.save_pieces
        monkeypatch.setattr(directory, "save_pieces", self._held)

    def _held(self, *arguments: object) -> None:
        self.writing += 1
        assert self.open.wait(600)
        if self.error is not None:
            raise self.error
        self._write(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def test_training_goes_on_and_latest_moves_when_it_is_complete(tmp_path: Path, gate: Gate) -> None:
    tensors = {"model.weight": torch.arange(6.0)}
    with CheckpointDirectory(tmp_path, keep=None, is_main=True, asynchronous=True) as checkpoints:
        checkpoints.prepare(tensors)
        path = checkpoints.save(1, tensors, {}, best=False)
        checkpoints.wait_for_copy()
        tensors["model.weight"].zero_()  # the next update
        assert checkpoints.latest() is None and not (checkpoints.path / "latest").exists()
        gate.open.set()
    assert checkpoints.latest() == path and (checkpoints.path / "latest").resolve() == path.resolve()
    read_tensors(path, tensors)
    assert tensors["model.weight"].tolist() == [0, 1, 2, 3, 4, 5]


def test_the_copy_is_taken_while_the_next_passes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights wait for their update until they are copied; what a forward pass changes is copied at once."""
    copied = threading.Event()
    copy = BackgroundWriter._copy

    def slow(self: BackgroundWriter, piece: Piece) -> Piece:
        assert piece.name == "model.mean" or copied.wait(600)
        return copy(self, piece)

    monkeypatch.setattr(BackgroundWriter, "_copy", slow)
    tensors = {"model.weight": torch.arange(6.0), "model.mean": torch.arange(3.0)}
    with CheckpointDirectory(tmp_path, keep=None, is_main=True, asynchronous=True) as checkpoints:
        path = checkpoints.save(1, tensors, {}, best=False, copy_now={"model.mean"})
        tensors["model.mean"].zero_()  # a forward pass
        waiting = threading.Thread(target=checkpoints.wait_for_copy)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        copied.set()
        waiting.join()
        tensors["model.weight"].zero_()  # the update
    read_tensors(path, tensors)
    assert tensors["model.weight"].tolist() == [0, 1, 2, 3, 4, 5] and tensors["model.mean"].tolist() == [0, 1, 2]


def test_a_run_saves_the_same_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running statistics and averages of weights too, however late the copy is taken."""
    copy = BackgroundWriter._copy

    def slow(self: BackgroundWriter, piece: Piece) -> Piece:
        time.sleep(0.001)
        return copy(self, piece)

    monkeypatch.setattr(BackgroundWriter, "_copy", slow)
    flags = ["--steps", "2", "--checkpoint.every", "1", "--checkpoint.keep", "2", "--train.ema", "0.9"]
    flags += ["--evaluate.every", "1", "--evaluate.batches", "1", "--train.epochs", "None", "--batch.global", "4"]
    flags += ["--data.training-images", "16", "--data.validation-images", "4", "--data.image-size", "32"]
    for asynchronous in ("False", "True"):
        run_dir = ["--run-dir", str(tmp_path / asynchronous), "--checkpoint.asynchronous", asynchronous]
        assert run(["train", "resnet/tiny-synthetic", *flags, *run_dir]) == 0
    for step in ("step-00000001", "step-00000002"):
        direct, later = (StoredTensors(tmp_path / name / "checkpoints" / step, "") for name in ("False", "True"))
        assert set(direct) == set(later) and any("running_mean" in name for name in direct)
        assert all(torch.equal(direct[name], later[name]) for name in direct)


def test_one_at_a_time(tmp_path: Path, gate: Gate) -> None:
    tensors = {"model.weight": torch.zeros(3)}
    with CheckpointDirectory(tmp_path, keep=None, is_main=True, asynchronous=True) as checkpoints:
        checkpoints.save(1, tensors, {}, best=False)
        second = threading.Thread(target=checkpoints.save, args=(2, tensors, {}, False))
        second.start()
        wait_for(lambda: gate.writing > 0)
        second.join(0.2)
        assert second.is_alive() and gate.writing == 1
        gate.open.set()
        second.join()
    assert gate.writing == 2 and len(list(checkpoints.path.glob("step-*"))) == 2


def test_an_error_comes_with_the_next_save_or_at_the_end(tmp_path: Path, gate: Gate) -> None:
    tensors = {"model.weight": torch.zeros(3)}
    gate.error = MachineError("the disk is full")
    gate.open.set()
    with CheckpointDirectory(tmp_path, keep=None, is_main=True, asynchronous=True) as checkpoints:
        checkpoints.save(1, tensors, {}, best=False)
        with pytest.raises(MachineError, match="the disk is full"):
            checkpoints.save(2, tensors, {}, best=False)
        gate.error = None
        checkpoints.save(3, tensors, {}, best=False)
    with (
        pytest.raises(MachineError, match="the disk is full"),
        CheckpointDirectory(tmp_path, keep=None, is_main=True, asynchronous=True) as checkpoints,
    ):
        gate.error = MachineError("the disk is full")
        checkpoints.save(4, tensors, {}, best=False)
    assert [path.name for path in checkpoints.path.glob("step-*")] == ["step-00000003"]


def test_a_run_that_fails_finishes_what_it_began_to_write(tmp_path: Path, gate: Gate) -> None:
    checkpoints = CheckpointDirectory(tmp_path, keep=None, is_main=True, asynchronous=True)
    with pytest.raises(ZeroDivisionError), checkpoints:
        checkpoints.save(1, {"model.weight": torch.zeros(3)}, {}, best=False)
        threading.Timer(0.1, gate.open.set).start()
        raise ZeroDivisionError
    assert checkpoints.latest() is not None
