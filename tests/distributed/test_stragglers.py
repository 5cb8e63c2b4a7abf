"""The process that keeps the others waiting is named, whatever it is slow in; no process has to wait to be told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paddock.config.layouts import with_layout
from paddock.config.load import merge
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.parallel.world import World
from paddock.tasks.registry import prepare_data
from paddock.telemetry import thread_time
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stream import MetricStream
from paddock.telemetry.thread_time import thread_seconds
from paddock.testing.layouts import small_recipe, this_world
from paddock.testing.pool import ProcessPool
from paddock.training.callbacks import Callback, stragglers
from paddock.training.callbacks.stragglers import Stragglers
from paddock.training.loop import TrainingLoop
from paddock.training.run import TrainingRun

PoolOf = Callable[[int], ProcessPool]
STEPS = 8
SECTIONS: dict[str, Any] = {
    "train": {"steps": STEPS},
    "log": {"every": 1},
    "checkpoint": {"every": None},
    "data": {"workers": 0},
}
BURNT = 0.1
"""Seconds a step: many times what the small model computes."""


def burn(module: nn.Module, inputs: Any) -> None:
    until = time.thread_time() + BURNT
    while time.thread_time() < until:
        pass


class SlowDown(Callback):
    """Makes a process slow: in what it computes, or in reading its data."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def on_start(self, run: TrainingRun) -> None:
        if self._kind == "compute":
            next(run.engine.models[0].get_submodule("layers").children()).register_forward_pre_hook(burn)


class Ear(Callback):
    """Hears what is logged."""

    def __init__(self) -> None:
        self.heard: list[dict[str, float]] = []

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        self.heard.append(dict(metrics or {}))


def trains(rank: int, values: dict[str, Any], slow: int, kind: str, folder: str) -> tuple[list[str], Any, int]:
    """What is said, what is logged, and how often this process waited for words of the others while it trained."""
    recipe, said, ear, waits = recipe_from_dict(values), [], Ear(), 0
    all_gather = World.all_gather

    def counted(world: World, value: str) -> list[str]:
        nonlocal waits
        waits += 1
        return all_gather(world, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stragglers, "STEPS", 3)
        patch.setattr(World, "all_gather", counted)
        callbacks = [Stragglers(said.append), ear, *([SlowDown(kind)] if rank == slow else [])]
        world = this_world()
        run = TrainingRun(
            recipe, check_recipe(recipe, 2), prepare_data(recipe), Path(folder), world, callbacks=callbacks
        )
        if kind == "data" and rank == slow:
            collate = run.task.collate
            patch.setattr(run.task, "collate", lambda samples: (time.sleep(BURNT), collate(samples))[1])
        with run.checkpoints:
            TrainingLoop(run, MetricStream(), ThroughputMeter(0, busy=thread_seconds)).train()
    return said, ear.heard, waits


@pytest.mark.slow  # it weighs times of processes against each other, for which the machine must have nothing else to do
@pytest.mark.parametrize(("kind", "layout", "slow"), [("compute", "dp2", 1), ("compute", "tp2", 0), ("data", "dp2", 0)])
def test_the_slow_process_is_named(pool_of: PoolOf, kind: str, layout: str, slow: int, tmp_path: Path) -> None:
    values = with_layout(recipe_from_dict(merge(small_recipe().to_dict(), SECTIONS)), layout).to_dict()
    (said, heard, waits), (silent, others, _) = pool_of(2).run(trains, values, slow, kind, str(tmp_path / "run"))
    assert silent == []
    assert len(said) == 2, said  # while it trains, once; and at the end
    assert f"rank {slow} (on " in said[0] and "is slow" in said[0] and "all wait for it" in said[0]
    assert f"rank {slow} (on " in said[1] and "was the slowest" in said[1]
    assert waits == 2  # for the hosts' names and for skipped samples: at the beginning and at the end
    for metrics in (heard, others):
        assert "train.own_time.0" not in metrics[0]  # one time of logging late
        for one in metrics[2:]:
            own = {rank: one[f"train.own_time.{rank}"] for rank in (0, 1)}
            assert own[slow] >= BURNT and own[slow] > stragglers.SLOWER * own[1 - slow]


def test_stages_of_a_pipeline_are_not_compared(pool_of: PoolOf, tmp_path: Path) -> None:
    values = with_layout(recipe_from_dict(merge(small_recipe().to_dict(), SECTIONS)), "pp2").to_dict()
    (said, heard, _), _ = pool_of(2).run(trains, values, 1, "compute", str(tmp_path / "run"))
    assert said == [] and heard[-1]["train.own_time.1"] > BURNT


def test_work_is_what_a_thread_computes_or_wants_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    busy, burnt = thread_seconds(), time.thread_time()
    burn(nn.Identity(), torch.ones(1))
    burnt = time.thread_time() - burnt
    assert thread_seconds() - busy >= burnt * 0.9
    account = tmp_path / "schedstat"
    account.write_text("2000000000 500000000 7\n")
    monkeypatch.setattr(thread_time, "ACCOUNT", account)
    assert thread_seconds() == 2.5
    account.unlink()
    before = time.thread_time()
    assert before <= thread_seconds() <= time.thread_time()


@pytest.mark.slow  # where other things run, a thread that has slept may wait for its core
def test_waiting_is_no_work() -> None:
    before, busy = time.perf_counter(), thread_seconds()
    time.sleep(0.3)
    burn(nn.Identity(), torch.ones(1))
    assert thread_seconds() - busy <= time.perf_counter() - before - 0.2
