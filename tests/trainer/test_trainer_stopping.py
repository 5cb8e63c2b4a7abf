"""Callbacks that have seen enough, and metrics of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock import Callback, Stop, Trainer
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
