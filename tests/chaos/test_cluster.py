"""A fault of the campaign over two machines, and one that nobody survives: which shows that they are seen."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

CLUSTER = str(Path(__file__).with_name("cluster.py"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc does not tell what is left"),
]


def campaign(tmp_path: Path, kind: str) -> tuple[int, dict[str, str]]:
    report = tmp_path / "report.csv"
    command = [sys.executable, CLUSTER, "--faults", "1", "--keep", str(tmp_path), "--kinds", kind, "--csv", str(report)]
    command += ["--timeout", "60"]  # nothing here is lost by silence, and no time is judged
    done = subprocess.run(command, capture_output=True, text=True)
    assert report.exists(), done.stderr
    with open(report, encoding="utf-8", newline="") as stream:
        (row,) = csv.DictReader(stream)
    return done.returncode, row


def test_a_job_survives_a_killed_rank(tmp_path: Path) -> None:
    code, row = campaign(tmp_path, "kill_rank")
    assert (code, row["wrong"]) == (0, "")
    assert row["outcome"] in ("recovered", "unaffected")


def test_what_is_lost_is_seen(tmp_path: Path) -> None:
    code, row = campaign(tmp_path, "damaged_run")
    assert (code, row["outcome"]) == (1, "lost")
    assert "it cannot go on" in row["wrong"]
