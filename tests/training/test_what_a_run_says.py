"""What a run says of itself while it trains: the loss of every step, how far an evaluation is, that it saves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock import phases
from paddock.checkpoint.directory import CheckpointDirectory
from paddock.cli.main import run
from paddock.telemetry.screen.console import ConsoleSink
from paddock.testing.tiny import TINY, losses


@pytest.mark.parametrize("flags", [[], ["--checkpoint.asynchronous"]])
def test_evaluating_and_saving_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]) -> None:
    said: list[str] = []
    update, save = phases.Phase.update, CheckpointDirectory.save

    def updated(self: phases.Phase, done: int, total: int) -> None:
        update(self, done, total)
        said.append(phases.current())

    def saved(self: CheckpointDirectory, *arguments: Any) -> Path:
        said.append(phases.current())
        return save(self, *arguments)

    monkeypatch.setattr(phases.Phase, "update", updated)
    monkeypatch.setattr(CheckpointDirectory, "save", saved)
    assert run(["train", *TINY, *flags, "--run-dir", str(tmp_path / "run")]) == 0
    once = [*(f"evaluating {batch}/8" for batch in range(1, 9)), "saving"]
    assert said == [*once, *once]
    assert phases.current() == ""


def test_every_step_tells_its_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, Any] = {}
    tick = ConsoleSink.tick

    def ticked(self: ConsoleSink, step: int, latest: Mapping[str, Any]) -> None:
        told[step] = latest
        tick(self, step, latest)

    monkeypatch.setattr(ConsoleSink, "tick", ticked)
    place = tmp_path / "run"
    assert run(["train", *TINY, "--log.every", "6", "--evaluate.every", "None", "--run-dir", str(place)]) == 0
    assert list(told) == [0, 1, 2, 3, 4, 5, 6]
    assert told.pop(0) == {}, "where the run begins nothing is known yet"
    assert [told[1]["train.loss"], told[6]["train.loss"]] == losses(place)
    assert len({latest["train.loss"] for latest in told.values()}) == 6
    assert all(latest["train.grad_norm"] > 0 for latest in told.values())


def test_the_first_step_is_announced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "run"
    assert run(["train", *TINY, "--steps", "2", "--run-dir", str(place)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[said.index("training: step 1 of 2") + 1].startswith("step     1/2  loss")
    assert run(["resume", str(place), "--steps", "3"]) == 0
    assert "training: step 3 of 3\n" in capsys.readouterr().err
    assert run(["train", *TINY, "--steps", "3", "--run-dir", str(place), "--checkpoint.load", "auto"]) == 0
    assert "training:" not in capsys.readouterr().err, "there is no step to do"
