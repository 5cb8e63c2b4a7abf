"""Training with loader workers: the same run, and the same manners at Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.errors import STOPPED
from paddock.testing.processes import wait_for
from paddock.testing.tiny import TINY, losses


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_workers_change_nothing(trained_run: Path, tmp_path: Path) -> None:
    assert run(["train", *TINY, "--run-dir", str(tmp_path / "run"), "--data.workers", "2"]) == 0
    assert losses(tmp_path / "run") == losses(trained_run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_finish_the_step_and_save(number: signal.Signals, tmp_path: Path) -> None:
    """As a terminal sends it: to the run and its workers alike."""
    run_dir, metrics = tmp_path / "run", tmp_path / "run" / "metrics.jsonl"
    endless = ["--steps", "1000000", "--evaluate.every", "None", "--checkpoint.every", "None", "--data.workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "paddock", "train", *TINY, *endless, "--run-dir", str(run_dir)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        wait_for(lambda: process.poll() is not None or (metrics.exists() and '"train.loss": ' in metrics.read_text()))
        os.killpg(process.pid, number)
        _, errors = process.communicate()
        assert process.returncode == STOPPED, errors
        assert f"stopped by {number.name}; a checkpoint is saved" in errors and "Traceback" not in errors
        assert len(list((run_dir / "checkpoints").glob("step-*"))) == 1
        wait_for(lambda: group_is_gone(process.pid))
    finally:
        process.kill()
        process.wait()
