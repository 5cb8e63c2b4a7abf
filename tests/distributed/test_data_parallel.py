"""Two processes train as one: the same losses, exact evaluation, clean stops, and nothing lost when one dies."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.errors import STOPPED
from paddock.launch.stop import STOPPING
from paddock.testing.commands import Command, paddock
from paddock.testing.processes import is_gone, wait_for
from paddock.testing.tiny import TINY, losses

TWO = ["--nproc-per-node", "2"]
ENDLESS = ["--steps", "100000", "--evaluate.every", "None", "--checkpoint.every", "5"]


@pytest.fixture(scope="module")
def two_process_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps of the small recipe over two processes, in a sub-process as a user would start it."""
    run_dir = tmp_path_factory.mktemp("two") / "run"
    result = paddock("train", *TINY, *TWO, "--steps", "20", "--run-dir", str(run_dir))
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{run_dir}\n"
    assert "data 2 × tensor 1 × pipeline 1 = 2 processes" in result.stderr
    assert re.search(r"^ranks +0 +1 +0 +0–1 ", result.stderr, re.MULTILINE)  # the layout is drawn
    assert result.stderr.count("step     1/20") == 1  # only one process speaks
    return run_dir


def test_the_layout_changes_nothing(two_process_run: Path, tmp_path: Path) -> None:
    alone = tmp_path / "one"
    assert run(["train", *TINY, "--steps", "20", "--batch.micro", "8", "--run-dir", str(alone)]) == 0
    for name in ("train.loss", "train.grad_norm", "val.loss"):
        ours, theirs = losses(two_process_run, name), losses(alone, name)
        assert len(ours) == len(theirs) > 0
        assert ours == pytest.approx(theirs, rel=1e-5)


def test_two_processes_go_on_where_one_stopped(two_process_run: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "moved"
    flags = ["--schedule.decay-steps", "20", "--run-dir", str(run_dir)]
    assert run(["train", *TINY, *flags, "--steps", "10"]) == 0
    result = paddock("train", *TINY, *TWO, *flags, "--steps", "20", "--checkpoint.load", "auto")
    assert result.returncode == 0, result.stderr
    assert losses(run_dir) == pytest.approx(losses(two_process_run), rel=1e-5)


def test_evaluation_is_exact(two_process_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = paddock("evaluate", str(two_process_run), *TWO, "--batch.micro", "3", "--batch.global", "6", "--json")
    assert result.returncode == 0, result.stderr
    assert run(["evaluate", str(two_process_run), "--json"]) == 0
    alone, together = json.loads(capsys.readouterr().out), json.loads(result.stdout)
    assert alone["val.samples"] == together["val.samples"] and alone["val.samples"] % 6
    assert together["val.loss"] == pytest.approx(alone["val.loss"], rel=1e-6)


def wait_for_step(run_dir: Path, step: int, process: Command) -> None:
    metrics = run_dir / "metrics.jsonl"
    wait_for(lambda: process.poll() is not None or (metrics.exists() and len(losses(run_dir)) > step))
    assert process.poll() is None, process.stderr.read()


def children(pid: int) -> list[int]:
    """Those that a process has started, and theirs."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [other for child in found for other in children(child)]


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ctrl_c_saves_and_stops(tmp_path: Path, processes: int) -> None:
    run_dir = tmp_path / "run"
    process = Command("train", *TINY, *ENDLESS, "--nproc-per-node", str(processes), "--run-dir", str(run_dir))
    wait_for_step(run_dir, 2, process)
    workers = children(process.pid)
    process.send_signal(signal.SIGHUP if processes == 2 else signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == STOPPED, errors
    name = "SIGHUP" if processes == 2 else "SIGINT"
    assert errors.count(STOPPING) == 1 and f"stopped by {name}; a checkpoint is saved" in errors
    assert f"next: paddock resume {run_dir}\n" in errors
    steps = len(losses(run_dir))
    saved = (run_dir / "checkpoints" / "latest").resolve().name
    assert saved == f"step-{steps:08d}"
    wait_for(lambda: all(is_gone(worker) for worker in workers))
    result = paddock("resume", str(run_dir), "--train.steps", str(steps + 2))  # with as many processes as it had
    assert result.returncode == 0, result.stderr
    assert f"= {processes} process" in result.stderr and "changed: train.steps 100000 → " in result.stderr
    assert len(losses(run_dir)) == steps + 2


def test_a_closed_pipe_does_not_end_two_processes(tmp_path: Path) -> None:
    """`2>&1 | head -1`"""
    process = Command("train", *TINY, *TWO, "--run-dir", str(tmp_path / "run"), merged=True)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 0
    assert len(losses(tmp_path / "run")) == 6 and "step     6/6" in (tmp_path / "run" / "log.txt").read_text()


def test_a_killed_rank_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    process = Command("train", *TINY, *ENDLESS, *TWO, "--run-dir", str(run_dir))
    wait_for_step(run_dir, 7, process)
    workers = children(process.pid)
    victim = next(worker for worker in workers if rank_of(worker) == 1)
    os.kill(victim, signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 3
    assert re.search(r"error: rank 1 .*SIGKILL", errors), errors
    wait_for(lambda: all(is_gone(worker) for worker in workers))
    steps = len(losses(run_dir)) + 10  # however far it came before it was killed
    resumed = ["--evaluate.every", "None", "--checkpoint.load", "auto", "--run-dir", str(run_dir)]
    assert run(["train", *TINY, "--steps", str(steps), *resumed, "--schedule.decay-steps", "100000"]) == 0
    assert len(losses(run_dir)) == steps


def rank_of(pid: int) -> int | None:
    """What `ps` shows."""
    name, _, rank = Path(f"/proc/{pid}/comm").read_text().strip().partition("/")
    return int(rank) if name == "paddock" else None


def test_under_the_users_own_torchrun(two_process_run: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, "-m", "paddock", "train", *TINY, "--steps", "20", "--run-dir", str(run_dir)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert losses(run_dir) == pytest.approx(losses(two_process_run), rel=1e-5)
    assert result.stderr.count("step     1/20") == 1


def test_bad_numbers_are_found_by_all(tmp_path: Path) -> None:
    flags = ["--optimizer.lr", "1e30", "--optimizer.clip", "None", "--schedule.warmup", "0"]
    result = paddock("train", *TINY, *TWO, *flags, "--run-dir", str(tmp_path / "run"))
    assert result.returncode == 5, result.stderr
    assert re.search(r"error: step 2: loss (nan|inf)", result.stderr), result.stderr
    assert re.search(r"why: .*(first module whose output is not finite: |not finite: )", result.stderr)
