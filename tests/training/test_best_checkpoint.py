"""`checkpoints/best` is the model of the best evaluation: saved when it is found, whenever others are saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.checkpoint import directory
from paddock.checkpoint.directory import CheckpointDirectory
from paddock.checkpoint.storage import StoredTensors, describe_checkpoint
from paddock.cli.main import run
from paddock.testing.tiny import TINY, losses
from paddock.training import loop

FLAGS = [*TINY, "--data.source", "synthetic", "--tokenizer.kind", "none", "--evaluate.every", "1"]
FLAGS += ["--model.hidden", "16", "--batch.global", "2"]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that are written, in order."""
    steps: list[int] = []
    save = CheckpointDirectory.save

    def recorded(self: CheckpointDirectory, step: int, *rest: Any) -> Path:
        steps.append(step)
        return save(self, step, *rest)

    monkeypatch.setattr(CheckpointDirectory, "save", recorded)
    return steps


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets the next evaluations find these losses."""

    def find(*values: float) -> None:
        found = iter(values)
        monkeypatch.setattr(loop, "evaluate", lambda *_, **__: {"loss": (loss := next(found)), "perplexity": 2**loss})

    return find


def train(path: Path, *flags: str) -> int:
    return run(["train", *FLAGS, "--run-dir", str(path), *flags])


def steps_of(path: Path) -> list[str]:
    return sorted(step.name for step in (path / "checkpoints").glob("step-*"))


def pointed_at(path: Path, name: str) -> str:
    return (path / "checkpoints" / name).resolve(strict=True).name


def test_the_best_model_is_saved_where_nothing_else_is(
    tmp_path: Path, evaluations: Callable[..., None], saved: list[int]
) -> None:
    evaluations(5.0, 3.0, 4.0, 3.5, 6.0, 3.0)
    assert train(tmp_path, "--checkpoint.every", "None", "--checkpoint.keep", "1") == 0
    assert pointed_at(tmp_path, "best") == "step-00000002" and pointed_at(tmp_path, "latest") == "step-00000006"
    assert saved == [1, 2, 6], "the first evaluation, a better one, and the end"
    assert steps_of(tmp_path) == ["step-00000002", "step-00000006"]
    assert describe_checkpoint(tmp_path / "checkpoints" / "best").best["loss"] == 3.0


@pytest.mark.parametrize("asynchronous", ["False", "True"])
def test_a_step_is_written_once(
    asynchronous: str, tmp_path: Path, evaluations: Callable[..., None], saved: list[int]
) -> None:
    """Also where it is the best one, due, and the last at once."""
    evaluations(5.0, 4.0, 3.0, 6.0, 6.0, 2.0)
    flags = ["--checkpoint.every", "3", "--checkpoint.keep", "2", "--checkpoint.asynchronous", asynchronous]
    assert train(tmp_path, *flags) == 0
    assert saved == [1, 2, 3, 6]
    assert steps_of(tmp_path) == ["step-00000002", "step-00000003", "step-00000006"], "two, and the best"
    assert pointed_at(tmp_path, "best") == pointed_at(tmp_path, "latest") == "step-00000006"


def test_no_number_is_not_the_best(tmp_path: Path, evaluations: Callable[..., None], saved: list[int]) -> None:
    evaluations(float("nan"), 4.0, float("nan"), 5.0, 5.0, 5.0)
    assert train(tmp_path, "--checkpoint.every", "None") == 0
    assert saved == [2, 6] and pointed_at(tmp_path, "best") == "step-00000002"


def test_without_evaluations_there_is_no_best(tmp_path: Path, saved: list[int]) -> None:
    assert train(tmp_path, "--evaluate.every", "None", "--checkpoint.every", "3") == 0
    assert saved == [3, 6] and not (tmp_path / "checkpoints" / "best").exists()


OTHER_DATA = [["--data.split", "90", "8", "2"], ["--evaluate.batches", "1"]]


@pytest.mark.parametrize("changed", OTHER_DATA, ids=["documents", "how many"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_best_belongs_to_the_data_that_it_was_measured_on(
    in_place: bool, changed: list[str], tmp_path: Path, evaluations: Callable[..., None]
) -> None:
    evaluations(1.0, 2.0)
    flags = ["--data.split", "90", "5", "5", "--checkpoint.every", "None"]
    assert train(tmp_path / "run", *flags, "--steps", "2") == 0
    goes_on = [*flags, *changed, "--steps", "4", "--checkpoint.load", "auto" if in_place else str(tmp_path / "run")]
    evaluations(5.0, 4.0)
    path = tmp_path / ("run" if in_place else "other")
    assert train(path, *goes_on) == 0
    newest = describe_checkpoint(path / "checkpoints" / "latest")
    assert (newest.best["loss"], newest.best_step) == (4.0, 4)
    assert pointed_at(path, "best") == "step-00000004"


def test_a_best_stays_where_the_data_stay(tmp_path: Path, evaluations: Callable[..., None]) -> None:
    evaluations(1.0, 2.0)
    assert train(tmp_path, "--checkpoint.every", "None", "--steps", "2") == 0
    evaluations(5.0, 4.0)
    flags = ["--steps", "4", "--checkpoint.load", "auto", "--optimizer.lr", "1e-3"]
    assert train(tmp_path, "--checkpoint.every", "None", *flags) == 0
    assert describe_checkpoint(tmp_path / "checkpoints" / "latest").best_step == 1
    assert pointed_at(tmp_path, "best") == "step-00000001"


class PowerCut(BaseException):
    """Nothing that a program can catch."""


FOUND = (5.0, 4.5, 6.0, 3.0, 4.0, 4.0)


@pytest.mark.parametrize("moment", ["before the save", "before the link"])
def test_a_run_that_is_killed_with_the_best_in_hand_ends_as_one_that_is_not(
    moment: str, tmp_path: Path, evaluations: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluations(*FOUND)
    flags = ["--checkpoint.every", "None", "--checkpoint.keep", "1", "--train.ema", "0.9"]
    assert train(tmp_path / "whole", *flags) == 0
    evaluations(*FOUND)
    with monkeypatch.context() as patch:
        if moment == "before the save":
            cut_at(patch, CheckpointDirectory, "save", lambda self, step, *_: step == 4)
            begins = 2
        else:
            cut_at(patch, directory, "replace_link", lambda link, to: (link.name, to) == ("best", "step-00000004"))
            begins = 4
        with pytest.raises(PowerCut):
            train(tmp_path / "cut", *flags)
    evaluations(*FOUND[begins:])
    assert train(tmp_path / "cut", *flags, "--checkpoint.load", "auto") == 0
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert steps_of(tmp_path / "cut") == steps_of(tmp_path / "whole") == ["step-00000004", "step-00000006"]
    for name in ("best", "latest"):
        one, other = (tmp_path / path / "checkpoints" / name for path in ("cut", "whole"))
        assert describe_checkpoint(one).best_step == describe_checkpoint(other).best_step == 4
        ours, theirs = StoredTensors(one, ""), StoredTensors(other, "")
        assert set(ours) == set(theirs) and all(torch.equal(ours[key], theirs[key]) for key in ours)


def cut_at(patch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool]) -> None:
    original = getattr(owner, name)

    def cut(*arguments: Any) -> Any:
        if when(*arguments):
            raise PowerCut
        return original(*arguments)

    patch.setattr(owner, name, cut)
