"""Going on with a run: `paddock resume`, what changed, what is refused, and what is kept of every attempt."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from paddock import Trainer
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.storage import describe_checkpoint
from paddock.cli.main import run
from paddock.config.load import load_recipe
from paddock.errors import STOPPED
from paddock.launch.rendezvous.nodes import agreed
from paddock.telemetry.jsonl import read_metrics
from paddock.testing.tiny import TINY, losses
from paddock.training.callbacks import Callback, register_callback
from paddock.training.run import TrainingRun

SMALL = [*TINY, "--model.hidden", "16", "--model.context", "64", "--batch.global", "4", "--schedule.decay-steps", "9"]
SYNTHETIC = [*SMALL, "--data.source", "synthetic", "--tokenizer.kind", "none", "--evaluate.every", "None"]


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Two steps of a run, of which the checkpoints are at 1 and 2."""
    path = tmp_path / "runs" / "begun"
    flags = ["--steps", "2", "--checkpoint.every", "1", "--run-dir", str(path)]
    assert run(["train", *SYNTHETIC, *flags]) == 0
    return path


def test_resume_goes_on_as_if_nothing_had_been(begun: Path, tmp_path: Path) -> None:
    assert run(["train", *SYNTHETIC, "--steps", "4", "--run-dir", str(tmp_path / "whole")]) == 0
    assert run(["resume", str(begun), "--train.steps", "4"]) == 0
    assert losses(begun) == losses(tmp_path / "whole")


def test_what_changed_is_shown_and_kept(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--optimizer.lr", "5e-4", "--model.dropout", "0.2", "--batch.global", "8", "--train.steps", "3"]
    assert run(["resume", str(begun), *flags]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("changed: ")]
    before = load_recipe(begun / "attempts" / "1" / "config.yaml")
    assert said == [
        f"changed: model.dropout {before.model.dropout} → 0.2",  # type: ignore[attr-defined]
        "changed: batch.global 4 → 8",
        f"changed: optimizer.lr {before.optimizer.lr} → 0.0005",
        "changed: train.steps 2 → 3",
    ]
    assert load_recipe(begun / "attempts" / "2" / "config.yaml").optimizer.lr == 5e-4
    assert (begun / "config.yaml").read_bytes() == (begun / "attempts" / "2" / "config.yaml").read_bytes()
    environments = [json.loads((begun / "attempts" / n / "environment.json").read_text()) for n in "12"]
    assert all(kept["torch"] and kept["processes"]["nproc_per_node"] == 1 for kept in environments)


def test_nothing_is_said_where_nothing_changed(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(begun / "checkpoints" / "step-00000002")
    capsys.readouterr()
    assert run(["resume", str(begun)]) == 0
    assert "changed" not in capsys.readouterr().err


def test_rewound_steps_are_told_apart(begun: Path) -> None:
    """The second step is done twice, with another learning rate."""
    shutil.rmtree(begun / "checkpoints" / "step-00000002")
    assert run(["resume", str(begun), "--optimizer.lr", "5e-4", "--train.steps", "3"]) == 0
    logs = [one for one in read_metrics(begun / "metrics.jsonl", rewound=True) if "train.lr" in one.get("data", {})]
    assert [(one["attempt"], one["step"][1]) for one in logs] == [(1, 1), (1, 2), (2, 2), (2, 3)]
    assert set(logs[0]) == {"timestamp", "elapsedtime", "datetime", "type", "step", "data", "attempt"}
    assert losses(begun, "train.lr") == [logs[number]["data"]["train.lr"] for number in (0, 2, 3)]


@pytest.mark.parametrize(
    ("flags", "change"),
    [
        (["--train.seed", "99"], "train.seed 1234 → 99"),
        (["--data.split", "50", "45", "5"], "training data 9000 of 10000"),
    ],
)
def test_what_breaks_the_promise_has_to_be_asked_for(
    flags: list[str], change: str, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in begun.rglob("*"))
    flags = [*flags, "--train.steps", "3"]
    assert run(["resume", str(begun), *flags]) == 2
    assert "--checkpoint.allow-changes" in capsys.readouterr().err
    assert sorted(path.name for path in begun.rglob("*")) == before
    assert run(["resume", str(begun), *flags, "--checkpoint.allow-changes"]) == 0
    assert f"changed: {change}" in capsys.readouterr().err
    assert not load_recipe_to_resume(begun).checkpoint.allow_changes, "the next time it has to be asked for again"


def load_recipe_to_resume(path: Path) -> Any:
    from paddock.jobs.resume import saved_recipe

    return saved_recipe(path)


def test_what_cannot_be_resumed(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def refused(*arguments: str) -> str:
        capsys.readouterr()
        assert run(["resume", *arguments]) in (2, 4)
        return capsys.readouterr().err

    assert "needs a run" in refused() and "before the flags" in refused("--train.steps", "3")
    assert 'did you mean "runs/begun"?' in refused("runs/begn")
    assert 'did you mean "runs/begun"?' in refused("begun")
    assert "there is no run gpt2/tiny" in refused("gpt2/tiny")
    assert f"paddock resume {begun}" in refused("runs/begun/config.yaml")
    assert f"paddock resume {begun}" in refused("runs/begun/checkpoints/latest")
    assert "is not a run" in refused("runs")
    done = refused("runs/begun")
    assert "has finished: it is at step 2 of 2" in done and "paddock resume runs/begun --train.steps MORE" in done
    shutil.rmtree("runs/begun/checkpoints")
    assert "has no checkpoint yet" in refused("runs/begun")


def test_the_next_attempt_has_as_many_processes(begun: Path) -> None:
    from paddock.jobs.resume import saved_launch

    environment = json.loads((begun / "environment.json").read_text())
    (begun / "environment.json").write_text(json.dumps(environment | {"processes": {"nproc_per_node": 4, "nnodes": 2}}))
    assert (saved_launch(begun).nproc_per_node, saved_launch(begun).nnodes) == (4, 2)
    (begun / "environment.json").write_text("{}")  # of a run from before this was kept
    assert saved_launch(begun).world_size == 1


@register_callback
class TerminateAtTwo(Callback):
    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        if run.progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)


@register_callback
class TerminateAtTheEnd(Callback):
    def on_save(self, run: TrainingRun, checkpoint: Path) -> None:
        if run.progress.step == run.total_steps:
            os.kill(os.getpid(), signal.SIGTERM)


@register_callback
class EnoughAtTwo(Callback):
    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        if run.progress.step == 2:
            run.stop("enough")


@pytest.mark.parametrize(
    ("name", "code", "step"),
    [("TerminateAtTwo", STOPPED, 3), ("TerminateAtTheEnd", 0, 4), ("EnoughAtTwo", 0, 3)],
)
def test_a_run_that_a_signal_stopped_has_an_exit_code_of_its_own(
    name: str, code: int, step: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--steps", "4", "--run-dir", str(tmp_path / "run"), "--train.callbacks", name]
    assert run(["train", *SYNTHETIC, *flags]) == code
    assert describe_checkpoint(find_checkpoint(tmp_path / "run")).step == step
    if step < 4:
        assert f"next: paddock resume {tmp_path / 'run'}\n" in capsys.readouterr().err
        assert run(["resume", str(tmp_path / "run"), "--train.callbacks", "[]"]) == 0
        assert len(losses(tmp_path / "run")) == 4


@register_callback
class CopyAtFour(Callback):
    """Keeps what is on the disk when the fourth step is done: what a run leaves that is killed there."""

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        if run.progress.step == 4 and not run.run_dir.with_name("killed").exists():
            shutil.copytree(run.run_dir, run.run_dir.with_name("killed"))


T5 = [
    *("t5/tiny", "--model.layers", "1", "--model.hidden", "16", "--model.heads", "2", "--model.head-size", "8"),
    *("--model.feed-forward", "16", "--model.dropout", "0.1", "--batch.micro", "4", "--batch.global", "8"),
    *("--schedule.warmup", "2", "--evaluate.every", "None", "--log.every", "1", "--checkpoint.keep", "5"),
]


@pytest.mark.parametrize("name", ["adafactor", "adamw"])
def test_a_t5_that_is_killed_goes_on_bit_by_bit(name: str, tmp_path: Path) -> None:
    """Which spans are cut out, dropout, both stacks and what T5's own optimizer keeps of them."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    flags = ["--steps", "6", "--checkpoint.every", "1", "--optimizer.name", name, "--train.callbacks", "CopyAtFour"]
    assert run(["train", *T5, *flags, "--run-dir", str(whole)]) == 0
    assert not (killed / "checkpoints" / "step-00000005").exists()
    assert run(["resume", str(killed)]) == 0
    logs = [one for one in read_metrics(killed / "metrics.jsonl", rewound=True) if "train.loss" in one.get("data", {})]
    again = [one["step"][1] for one in logs if one["attempt"] == 2]
    assert again[0] in (3, 4, 5) and again[-1] == 6, "it began anew"
    for number in ("train.loss", "train.grad_norm"):
        assert losses(killed, number) == losses(whole, number) and len(losses(whole, number)) == 6
    ours, theirs = (load_file(path / "checkpoints/step-00000006/shard-00000.safetensors") for path in (killed, whole))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("name", "stopped"), [("TerminateAtTwo", "SIGTERM"), ("TerminateAtTheEnd", None), ("EnoughAtTwo", "enough")]
)
def test_the_trainer_says_what_stopped_it(name: str, stopped: str | None, tmp_path: Path) -> None:
    overrides = {"model.layers": 1, "model.hidden": 16, "model.heads": 2, "model.vocab": 128, "train.steps": 4}
    overrides |= {"data.source": "synthetic", "tokenizer.kind": "none", "batch.global": 2, "batch.micro": 2}
    trainer = Trainer(recipe="gpt2/tiny", overrides=overrides | {"train.callbacks": [name]}, run_dir=tmp_path / "run")
    assert trainer.train()["stopped"] == stopped


def test_a_run_multiplies_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paddock.devices import products

    def found_by(way: str) -> None:
        ways = {operation: dict.fromkeys(products.CLASSES, way) for operation in products.OPERATIONS}
        monkeypatch.setattr(products, "measure", lambda: ways)

    def kept(attempt: int) -> dict[str, Any]:
        document = json.loads((path / "attempts" / str(attempt) / "environment.json").read_text())
        return {way: None for by_rows in document["products"]["ways"].values() for way in by_rows.values()}

    monkeypatch.setattr(products, "SMALLEST_MODEL", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first"))
    path = tmp_path / "run"
    found_by("onednn")
    assert run(["train", *SYNTHETIC, "--steps", "2", "--run-dir", str(path)]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))  # a machine that would find otherwise
    found_by("mkl")
    assert run(["resume", str(path), "--train.steps", "3"]) == 0
    assert run(["resume", str(path), "--train.steps", "4", "--device.products", "mkl"]) == 0
    assert [list(kept(attempt)) for attempt in (1, 2, 3)] == [["onednn"], ["onednn"], ["mkl"]]
    assert json.loads((path / "environment.json").read_text())["products"]["ways"]["forward"]["1 wide"] == "mkl"


def test_a_machine_that_comes_back_is_told_the_same_by_resume_as_by_train(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the first one began from weights."""
    heard: list[dict[str, str]] = []

    def asking(*arguments: Any) -> Any:
        heard.append(arguments[-1])
        return agreed(*arguments)

    monkeypatch.setattr("paddock.jobs.train.agreed", asking)
    there = tmp_path / "runs" / "one"
    origin = ["--checkpoint.load", str(trained_run), "--checkpoint.weights-only", "--run-dir", str(there)]
    assert run(["train", *TINY, *origin, "--steps", "1", "--schedule.warmup", "0"]) == 0
    monkeypatch.chdir(tmp_path / "runs")
    assert run(["resume", "one"]) != 0, "it is at its end"
    first, again = heard
    assert first == again and first["--run-dir"] == "one"
    assert run(["resume", "one", "--optimizer.lr", "0.5", "--train.steps", "2"]) == 0
    assert {name for name in first if heard[2][name] != first[name]} == {"optimizer.lr", "train.steps"}
