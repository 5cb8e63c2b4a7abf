"""How many threads: what is free, what was asked for, what a run had before."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import paddock
from paddock import Trainer, cores
from paddock.cli.main import run
from paddock.config.recipe import Recipe
from paddock.cores import Look, busy_with_others, look
from paddock.devices import threads as device_threads
from paddock.devices.threads import threads_for
from paddock.errors import ConfigError
from paddock.jobs import train as jobs_train
from paddock.jobs.train import TrainingOutcome
from paddock.launch import environment
from paddock.launch.environment import with_threads, worker_environment
from paddock.launch.options import LaunchOptions
from paddock.testing.tiny import TINY

SMALL = {"model": {"layers": 1, "hidden": 32, "heads": 2, "context": 32, "vocab": 400}, "data.sequence_length": 32}


@pytest.mark.parametrize(
    ("cores", "processes", "others", "expected"),
    [(2, 1, None, 2), (2, 1, 0.3, 2), (2, 1, 0.9, 1), (2, 1, 2.0, 1), (8, 2, 0.0, 4), (8, 2, 4.0, 2), (2, 4, 1.0, 1)],
)
def test_cores_that_are_free_are_shared_out(cores: int, processes: int, others: float | None, expected: int) -> None:
    assert threads_for(cores, processes, others) == expected


def test_what_others_do_is_what_this_process_does_not() -> None:
    first = Look(10.0, 100.0, 5.0)
    assert busy_with_others(first, Look(14.0, 106.0, 7.0)) == 1.0
    assert busy_with_others(first, Look(14.0, 101.0, 7.0)) == 0.0, "counters are coarse"
    assert busy_with_others(first, Look(10.1, 106.0, 7.0)) is None, "too short to tell"
    assert busy_with_others(None, first) is busy_with_others(first, None) is None


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="the system has no such counters")
def test_the_kernel_counts_what_this_process_does() -> None:
    before = look()
    while (now := look()) is None or before is None or now.own < before.own + 0.2:
        sum(range(1000))
    assert now.busy > before.busy and now.when > before.when


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four cores, three of which are busy."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(environment, "is_ours", lambda: True)
    monkeypatch.setattr(device_threads, "num_cores", lambda: 4)
    monkeypatch.setattr(device_threads, "_told", None)
    monkeypatch.setattr(cores, "_first", Look(0.0, 0.0, 0.0))
    monkeypatch.setattr(cores, "look", lambda: Look(10.0, 32.0, 2.0))


def test_a_loaded_machine(loaded: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert with_threads(LaunchOptions(), 4).threads == 1
    assert "other work keeps 3.0 of 4 cores busy" in capsys.readouterr().err
    assert with_threads(LaunchOptions(threads=3), 4).threads == 3
    monkeypatch.setattr(cores, "look", lambda: Look(10.0, 2.0, 2.0))
    assert with_threads(LaunchOptions(), 3).threads == 3, "never more than is usual"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert with_threads(LaunchOptions(), 4).threads is None
    assert capsys.readouterr().err == ""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that are set in this process, which began with four of them; it computes as ever."""
    seen: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: seen[-1] if seen else 4)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    return seen


@pytest.mark.parametrize("verb", ["evaluate", "generate", "benchmark", "predict"])
def test_every_verb_that_computes_takes_what_is_free(
    verb: str, loaded: None, counted: list[int], trained_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--benchmark.iterations", "1", "--benchmark.warmup", "0", "--benchmark.train"]
    words = {
        "evaluate": [str(trained_run)],
        "generate": [str(trained_run), "--prompt", "The class", "--max-new-tokens", "2"],
        "benchmark": [*TINY, *few],
        "predict": [str(trained_run), "The class"],  # which such a model refuses, but not before it is open
    }[verb]
    code = 2 if verb == "predict" else 0
    assert run([verb, *words, "--threads", "3"]) == code
    assert counted == [3, 4] and "other work" not in capsys.readouterr().err
    counted.clear()
    assert run([verb, *words]) == code
    assert counted == [1, 4]
    assert "3.0 of 4 cores busy, so that processes get 1 thread each, and not 4; --threads" in capsys.readouterr().err


def test_a_trainer_takes_what_is_free_unless_somebody_has_chosen(
    loaded: None, counted: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "is_ours", lambda: False)
    monkeypatch.setattr(device_threads, "busy_now", lambda: 3.0)
    monkeypatch.setattr(device_threads, "physical_cores", lambda: None)

    def threads_of(threads: int | None = None) -> int:
        trainer = Trainer(model="gpt2/tiny", overrides=SMALL, threads=threads)
        return int(trainer.benchmark(warmup=0, iterations=1)["threads"])

    assert threads_of() == 1
    assert "cores busy, so that processes get 1 thread each, and not 4; threads= says otherwise" in (
        capsys.readouterr().err
    )
    assert threads_of() == 1 and "note" not in capsys.readouterr().err, "once is enough"
    assert threads_of(2) == 2
    torch.set_num_threads(3)
    assert threads_of() == 3, "this is nobody's choice but the user's"
    torch.set_num_threads(4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads_of() == 4


def test_a_loaded_model_takes_what_is_free_unless_somebody_has_chosen(
    loaded: None, counted: list[int], monkeypatch: pytest.MonkeyPatch, trained_run: Path
) -> None:
    """Between the pieces of a text, too, nothing else has another number than before."""
    monkeypatch.setattr(device_threads, "busy_now", lambda: 3.0)
    monkeypatch.setattr(device_threads, "physical_cores", lambda: None)

    def threads_of(threads: int | None = None) -> set[int]:
        counted.clear()
        model = paddock.load(str(trained_run), threads=threads)
        for _ in model.generate("The class", max_new_tokens=2, temperature=0, stream=True):
            assert torch.get_num_threads() == 4
        model.perplexity("The class statement")
        assert not counted or counted[-1] == 4
        return {*counted} - {4}

    assert threads_of() == {1} and threads_of(2) == {2}
    with pytest.raises(ConfigError, match="threads = 0"):
        paddock.load(str(trained_run), threads=0)
    counted[:] = [3]
    paddock.load(str(trained_run)).perplexity("The class statement")
    assert counted == [3], "this is nobody's choice but the user's"


def test_what_others_do_now_is_looked_at_for_half_a_second_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looked = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def look() -> Look:
        nonlocal looked
        looked += 1
        return Look(now, 2.0 * now, 0.5 * now)

    monkeypatch.setattr(cores, "_newest", None)
    monkeypatch.setattr(cores, "look", look)
    monkeypatch.setattr(cores.time, "sleep", sleep)
    monkeypatch.setattr(cores.time, "monotonic", lambda: now)
    assert cores.busy_now() == cores.busy_now() == 1.5 and looked == 2
    now += 61.0
    assert cores.busy_now() == 1.5 and looked == 4
    monkeypatch.setattr(cores, "_newest", None)
    monkeypatch.setattr(cores, "look", lambda: None)
    assert cores.busy_now() is None


def test_what_is_asked_for_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    options = LaunchOptions(nproc_per_node=2, threads=3)
    assert worker_environment(options)["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in worker_environment(replace(options, threads=None))
    with pytest.raises(ConfigError, match="--threads = 0"):
        replace(options, threads=0).check()


def test_a_run_keeps_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "run"
    assert run(["train", *TINY, "--steps", "1", "--threads", "1", "--run-dir", str(place)]) == 0
    assert "device: cpu, 1 thread," in capsys.readouterr().err
    assert json.loads((place / "environment.json").read_text())["processes"]["threads"] == 1
    assert run(["resume", str(place), "--steps", "2"]) == 0
    assert "device: cpu, 1 thread," in capsys.readouterr().err


def test_another_number_of_processes_shares_anew_unless_told(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, asked = tmp_path / "run", []
    shutil.copytree(trained_run, place, symlinks=True)
    environment = json.loads((place / "environment.json").read_text())
    environment["processes"] = {"nproc_per_node": 1, "nnodes": 1, "threads": 3}
    (place / "environment.json").write_text(json.dumps(environment))

    def train(name: str, recipe: Recipe, launch: LaunchOptions, *_: object, **__: object) -> TrainingOutcome:
        asked.append(launch.threads)
        return TrainingOutcome(place, None, False, is_main=False)

    monkeypatch.setattr(jobs_train, "train", train)
    for flags in ([], ["--nproc-per-node", "2"], ["--nproc-per-node", "2", "--threads", "3"]):
        assert run(["resume", str(place), *flags]) == 0
    assert asked == [3, None, 3]
