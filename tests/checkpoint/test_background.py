"""Checkpoints that are written while training goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from paddock.checkpoint import directory
from paddock.checkpoint.directory import CheckpointDirectory
from paddock.checkpoint.storage import read_tensors
from paddock.errors import MachineError


class Gate:
    """Holds the writing up until it is opened, and then lets it fail if it is to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.error, self.writing = threading.Event(), None, 0
        self._write = directory.write_share
        monkeypatch.setattr(directory, "write_share", self._held)

    def _held(self, *arguments: object) -> None:
        self.writing += 1
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        self._write(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def test_training_goes_on_and_latest_moves_when_it_is_complete(tmp_path: Path, gate: Gate) -> None:
    tensors = {"model.weight": torch.arange(6.0)}
    with CheckpointDirectory(tmp_path, keep=None, leads=True, asynchronous=True) as checkpoints:
        checkpoints.prepare(tensors)
        path = checkpoints.save(1, tensors, {}, best=False)
        tensors["model.weight"].zero_()  # the next step
        assert checkpoints.latest() is None and not (checkpoints.path / "latest").exists()
        gate.open.set()
    assert checkpoints.latest() == path and (checkpoints.path / "latest").resolve() == path.resolve()
    read_tensors(path, tensors)
    assert tensors["model.weight"].tolist() == [0, 1, 2, 3, 4, 5]


def test_one_at_a_time(tmp_path: Path, gate: Gate) -> None:
    tensors = {"model.weight": torch.zeros(3)}
    with CheckpointDirectory(tmp_path, keep=None, leads=True, asynchronous=True) as checkpoints:
        checkpoints.save(1, tensors, {}, best=False)
        second = threading.Thread(target=checkpoints.save, args=(2, tensors, {}, False))
        second.start()
        second.join(0.2)
        assert second.is_alive() and gate.writing == 1
        gate.open.set()
        second.join()
    assert gate.writing == 2 and len(list(checkpoints.path.glob("step-*"))) == 2


def test_an_error_comes_with_the_next_save_or_at_the_end(tmp_path: Path, gate: Gate) -> None:
    tensors = {"model.weight": torch.zeros(3)}
    gate.error = MachineError("the disk is full")
    gate.open.set()
    with CheckpointDirectory(tmp_path, keep=None, leads=True, asynchronous=True) as checkpoints:
        checkpoints.save(1, tensors, {}, best=False)
        with pytest.raises(MachineError, match="the disk is full"):
            checkpoints.save(2, tensors, {}, best=False)
        gate.error = None
        checkpoints.save(3, tensors, {}, best=False)
    with (
        pytest.raises(MachineError, match="the disk is full"),
        CheckpointDirectory(tmp_path, keep=None, leads=True, asynchronous=True) as checkpoints,
    ):
        gate.error = MachineError("the disk is full")
        checkpoints.save(4, tensors, {}, best=False)
    assert [path.name for path in checkpoints.path.glob("step-*")] == ["step-00000003"]


def test_a_run_that_fails_finishes_what_it_began_to_write(tmp_path: Path, gate: Gate) -> None:
    checkpoints = CheckpointDirectory(tmp_path, keep=None, leads=True, asynchronous=True)
    with pytest.raises(ZeroDivisionError), checkpoints:
        checkpoints.save(1, {"model.weight": torch.zeros(3)}, {}, best=False)
        threading.Timer(0.1, gate.open.set).start()
        raise ZeroDivisionError
    assert checkpoints.latest() is not None
