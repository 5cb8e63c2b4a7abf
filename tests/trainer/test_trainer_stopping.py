"""Callbacks that have seen enough, and metrics of one's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock import Callback, Stop, Trainer
from paddock.training.callbacks.stop_requests import REQUEST
from paddock.training.run import TrainingRun

MakeTrainer = Callable[..., Trainer]
ENDLESS = {"train.steps": 10**6, "evaluate.every": None, "checkpoint.every": None, "schedule": {"warmup": 1}}
"""A run that only a callback ends."""


class Enough(Callback):
    """Has seen enough after a step, and says so in one of three ways."""

    def __init__(self, way: str) -> None:
        self.way = way

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> Any:
        if run.progress.step != 2:
            return None
        if self.way == "raised":
            raise Stop("seen enough")
        return Stop("seen enough") if self.way == "returned" else Stop


@pytest.mark.parametrize("way", ["raised", "returned", "its class returned"])
def test_a_callback_stops_the_run(way: str, small: MakeTrainer) -> None:
    trainer = small(callbacks=[Enough(way)], overrides=ENDLESS)
    result = trainer.train()
    assert result["step"] == 3, "the step under way is the last"
    assert result["stopped"] == ("a callback" if way == "its class returned" else "seen enough")
    assert (Path(result["run_dir"]) / "checkpoints" / "step-00000003").is_dir()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("way", ["raised", "returned"])
def test_a_function_stops_the_run_wherever_it_runs(way: str, processes: int, small: MakeTrainer) -> None:
    heard: list[int] = []

    def enough(step: int, metrics: dict[str, Any]) -> Stop | None:
        heard.append(step)
        if step >= 3 and way == "raised":
            raise Stop(f"loss {metrics['train.loss']:.0f}")
        return Stop("seen enough") if step >= 3 else None

    layout = {"parallel": "dp2", "nproc_per_node": 2} if processes == 2 else {}
    trainer = small(callbacks=[enough], overrides=ENDLESS, **layout)
    result = trainer.train()
    assert result["step"] >= 3 and heard[:3] == [1, 2, 3]
    assert result["stopped"].startswith("loss" if way == "raised" else "seen enough")
    assert not list(Path(result["run_dir"]).glob("stop*")), "what was asked of this run is not asked of the next"
    longer = {name: value for name, value in ENDLESS.items() if name != "train.steps"}
    goes_on = small(overrides=longer | {"train.steps": result["step"] + 1}, **layout)
    assert goes_on.train(resume_or_finetune_from_checkpoint=True)["stopped"] is None


class Holds(Callback):
    """Keeps the run at a step until somebody has asked it to stop."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        while run.progress.step == self.step and not (run.run_dir / REQUEST).exists():
            time.sleep(0.01)


def test_a_function_is_heeded_after_every_step(small: MakeTrainer) -> None:
    """Whatever is done before it has asked: the run looks after each step, and the next one is the last."""
    for held in (2, 5):
        enough = [Holds(held), lambda step, metrics: Stop("seen enough") if step >= 1 else None]
        settings = ENDLESS | {"log.every": 10**6}  # the first step alone is logged
        result = small(callbacks=enough, overrides=settings).train()
        assert result["stopped"] == "seen enough" and result["step"] <= held + 1


class Keeps(Enough):
    """Also notes what the run came to."""

    loss = 0.0

    def on_end(self, run: TrainingRun) -> None:
        self.loss = run.progress.loss


def test_a_stopped_run_tells_the_loss_of_its_last_step(small: MakeTrainer) -> None:
    callback = Keeps("raised")
    trainer = small(callbacks=[callback], overrides=ENDLESS | {"log.every": 100})
    result = trainer.train()
    assert (result["step"], result["loss"]) == (3, callback.loss)
    assert list(trainer.history["train.loss"]) == [1, 3] and f"step 3, loss {callback.loss:.4f}>" in repr(trainer)


class Fails(Callback):
    """Looks at the trainer's run while it is under way, and then fails."""

    trainer: Trainer

    def on_start(self, run: TrainingRun) -> None:
        self.rows = [len(self.trainer.history)]
        self.table = repr(self.trainer.history)

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        self.rows.append(len(self.trainer.history))
        self.told = repr(self.trainer)
        if run.progress.step == 3:
            raise RuntimeError("a defect of the callback")


def test_a_run_that_fails_is_the_newest(small: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    callback = Fails()
    trainer = callback.trainer = small(callbacks=[callback], run_dir=None, overrides={"checkpoint.every": 2})
    with pytest.raises(RuntimeError, match="a defect of the callback"):
        trainer.train()
    assert callback.rows == [0, 0, 1, 2], "there is what was recorded before"
    assert "0 steps recorded" in callback.table and ", running, step 2" in callback.told
    assert len(trainer.history) == 2 and ", failed, step 2, loss " in repr(trainer)
    assert trainer.evaluate()["loss"] > 0, "its checkpoint is there"
    trainer.callbacks.clear()
    assert trainer.train(resume_or_finetune_from_checkpoint=True)["step"] == 4


class Bits(Callback):
    """A metric of one's own."""

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        if metrics is not None:
            metrics["train.bits"] = metrics["train.loss"] / 2

    def on_evaluate(self, run: TrainingRun, metrics: dict[str, float]) -> None:
        metrics["bits"] = metrics["loss"] / 2


def test_metrics_of_ones_own_are_in_the_history(small: MakeTrainer) -> None:
    trainer = small(callbacks=[Bits()])
    trainer.train()
    history = trainer.history
    assert history["train.bits"] == {step: value / 2 for step, value in history["train.loss"].items()}
    assert history["val.bits"] == {step: value / 2 for step, value in history["val.loss"].items()}
