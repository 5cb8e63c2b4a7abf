"""Experiment trackers: what they are told, that theirs is no run's failure, and each of them, offline, where it is."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paddock.cli.main import run
from paddock.errors import MachineError
from paddock.telemetry.trackers import TRACKERS, Tracked, TrackerName, TrackerSink, check_tracker
from paddock.testing.tiny import TINY, losses

RECIPE = {"train": {"steps": 3}, "model": {"family": "gpt2"}}


class Fake(ModuleType):
    """A package that notes what it is told."""

    def __init__(self, name: str, fails: str = "") -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def note(*arguments: Any, **named: Any) -> None:
            print(f"{name} talks")
            if name == self._fails:
                raise RuntimeError(f"{name}: the server is gone\nand more")
            self.calls.append((name, arguments, named))

        return note

    def named(self, *names: str) -> list[dict[str, Any]]:
        return [named for name, _, named in self.calls if name in names]


def fake(name: str, monkeypatch: pytest.MonkeyPatch, fails: str = "") -> Fake:
    module = Fake(name, fails)
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_is_told_the_run_and_its_numbers(
    name: TrackerName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = fake(name, monkeypatch)
    sink = TrackerSink(name, Tracked(tmp_path / "tour", "zoo", RECIPE))
    sink.log((0, 10), {"train.loss": 3.5, "train.note": "text"})
    sink.log((0, 20), {"val.top.5": 0.5, "train.loss": math.nan})
    sink.log((), {"summary.best_metric": 0.25})
    sink.close()
    sink.close()
    begun = module.named("init", "start_run")[0]
    assert "tour" in (begun.get("name"), begun.get("experiment_name"), begun.get("run_name"))
    projects = [begun.get("project"), *(arguments for call, arguments, _ in module.calls if call == "set_experiment")]
    assert "zoo" in projects or ("zoo",) in projects
    logged = [
        (arguments[0], named["step"]) for call, arguments, named in module.calls if call in ("log", "log_metrics")
    ]
    assert logged[0] == ({"train/loss": 3.5}, 10)
    assert logged[1][0]["val/top.5"] == 0.5 and logged[1][1] == 20
    assert logged[2] == ({"summary/best_metric": 0.25}, 20)
    assert [call for call, _, _ in module.calls].count("finish") + [call for call, _, _ in module.calls].count(
        "end_run"
    ) == 1
    assert capsys.readouterr().out == ""


def test_mlflow_gets_parameters_and_finite_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake("mlflow", monkeypatch)
    sink = TrackerSink("mlflow", Tracked(tmp_path / "tour", "zoo", RECIPE))
    sink.log((0, 1), {"train.loss": math.nan, "train.lr": 0.1})
    told = {call: arguments for call, arguments, _ in module.calls}
    assert told["log_params"] == ({"train.steps": "3", "model.family": "gpt2"},)
    assert told["log_metrics"] == ({"train/lr": 0.1},)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_says_what_to_install(
    name: TrackerName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MachineError) as caught:
        TrackerSink(name, Tracked(tmp_path, "zoo"))
    assert "pip install" in caught.value.fix and caught.value.exit_code == 3


def test_it_is_missed_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("paddock.telemetry.trackers.find_spec", lambda name: None)
    assert run(["train", *TINY, "--log.track", "wandb", "--run-dir", str(tmp_path / "run")]) == 3
    assert "pip install wandb" in capsys.readouterr().err and not (tmp_path / "run").exists()
    check_tracker(None)


def test_one_that_does_not_begin_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake("wandb", monkeypatch, fails="init")
    with pytest.raises(MachineError) as caught:
        TrackerSink("wandb", Tracked(tmp_path, "zoo"))
    assert caught.value.why == "init: the server is gone"


def test_one_that_fails_on_the_way_says_so_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = fake("wandb", monkeypatch, fails="log")
    monkeypatch.setattr("paddock.telemetry.trackers.find_spec", lambda name: module)
    assert run(["train", *TINY, "--log.track", "wandb", "--run-dir", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.count("note: wandb failed (log: the server is gone)") == 1
    assert len(losses(tmp_path / "run")) == 6
    assert module.named("init")[0]["config"]["train"]["steps"] == 6


def test_trackio_keeps_the_numbers_of_a_run(tmp_path: Path) -> None:
    """In a process of its own: trackio decides on its folder when it is imported."""
    pytest.importorskip("trackio", reason='not installed: pip install "paddock[track]"')
    import sqlite3
    import subprocess

    code = (
        "from pathlib import Path; from paddock.telemetry.trackers import *\n"
        f"sink = TrackerSink('trackio', Tracked(Path({str(tmp_path / 'tour')!r}), 'zoo', {RECIPE!r}))\n"
        "[sink.log((0, step), {'train.loss': 4.0 - step, 'train.lr': 0.1}) for step in (1, 2, 3)]\n"
        "sink.close()\n"
    )
    import os

    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "store"), "HF_HUB_OFFLINE": "1"}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout == "", told.stderr
    [store] = (tmp_path / "store").rglob("*.db")
    with sqlite3.connect(store) as connection:
        rows = connection.execute("SELECT run_name, step, metrics FROM metrics ORDER BY step").fetchall()
    assert [(name, step) for name, step, _ in rows] == [("tour", 1), ("tour", 2), ("tour", 3)]
    assert json.loads(rows[-1][2]) == {"train/loss": 1.0, "train/lr": 0.1}


def test_wandb_takes_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="not installed: pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "tour").mkdir()
    sink = TrackerSink("wandb", Tracked(tmp_path / "tour", "zoo", RECIPE))
    sink.log((0, 1), {"train.loss": 3.5})
    sink.close()
    assert list((tmp_path / "tour" / "wandb").glob("offline-run-*/*.wandb"))


def test_swanlab_takes_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("swanlab", reason="not installed: pip install swanlab")
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    sink = TrackerSink("swanlab", Tracked(tmp_path / "tour", "zoo", RECIPE))
    sink.log((0, 1), {"train.loss": 3.5})
    sink.close()
    assert list((tmp_path / "tour" / "swanlog").glob("run-*"))


def test_mlflow_keeps_a_run_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="not installed: pip install mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    sink = TrackerSink("mlflow", Tracked(tmp_path / "tour", "zoo", RECIPE))
    sink.log((0, 1), {"train.loss": 3.5})
    sink.log((0, 2), {"train.loss": 3.25})
    sink.close()
    [found] = mlflow.search_runs(experiment_names=["zoo"], output_format="list")
    assert found.data.params["train.steps"] == "3" and found.data.metrics["train/loss"] == 3.25
