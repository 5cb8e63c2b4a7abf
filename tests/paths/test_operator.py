"""A job that is told to stop, gone on with, looked at and cleaned up after, as a script would do it."""

from __future__ import annotations

import json
import re
import shlex
import signal
from pathlib import Path

import pytest

from paddock.errors import STOPPED
from paddock.testing.commands import Command, paddock
from paddock.testing.processes import wait_for
from paddock.testing.samples.run_directories import MadeRun
from paddock.testing.tiny import TINY, losses

LONG = ["--steps", "100000", "--evaluate.every", "None", "--checkpoint.every", "None"]
"""Longer than anybody waits."""


def stopped(*words: str) -> tuple[int, str]:
    """Start a job, tell it to stop once it trains, and return its exit code and what it said."""
    with Command(*words, merged=True) as job:
        try:
            metrics = Path("runs/job/metrics.jsonl")
            wait_for(lambda: (metrics.exists() and len(losses(metrics.parent)) > 2) or job.poll() is not None)
            job.send_signal(signal.SIGTERM)
            said, _ = job.communicate()
        finally:
            job.kill()
        return job.wait(), said


def done(*words: str) -> str:
    ended = paddock(*words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize(
    "machines", [[], pytest.param(["--simulate-nodes", "2"], marks=pytest.mark.slow)], ids=["one machine", "two"]
)
def test_stop_resume_look_and_clean(machines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = stopped("train", *TINY, *LONG, "--run-dir", "runs/job", *machines)
    assert code == STOPPED and "stopped by SIGTERM; a checkpoint is saved" in said, said
    found = re.search(r"next: paddock (resume runs/job)", said)
    assert found is not None, said
    [row] = json.loads(done("runs", "list", "--json"))
    assert (row["name"], row["state"]) == ("runs/job", "stopped")

    reached = len(losses(Path("runs/job")))
    last = str(reached + 2)
    assert done(*shlex.split(found[1]), "--steps", last, *machines) == "runs/job\n"
    assert len(losses(Path("runs/job"))) == reached + 2
    page = done("runs", "show", "runs/job")
    assert f"{last} of {last}" in page and "train gpt2/tiny" in page and "resume runs/job" in page

    MadeRun(Path("runs/begun")).attempt(range(1, 1), ends=False)
    states = {one["name"]: one["state"] for one in json.loads(done("runs", "list", "--json"))}
    assert states == {"runs/job": "done", "runs/begun": "never began"}
    assert "would go" in done("runs", "clean", "--dry-run") and Path("runs/begun").exists()
    assert "removed runs/begun" in done("runs", "clean", "--yes") and not Path("runs/begun").exists()

    asks = paddock("runs", "rm", "runs/job")
    assert asks.returncode == 2 and "add --yes" in asks.stderr and Path("runs/job").exists()
    assert "removed runs/job" in done("runs", "rm", "runs/job", "--yes") and not Path("runs/job").exists()
