"""A few cheap faults against small runs: nothing is lost, nothing is left behind. `make chaos-local` has many more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHAOS = Path(__file__).parent
FAULTS = ("kill_at_write", "hangup", "full_disk", "closed_streams", "few_descriptors")

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc does not tell what is left")


def chaos(tmp_path: Path, *kinds: str, csv: Path | None = None) -> dict[str, Any]:
    command = [sys.executable, CHAOS, "--json", "--quiet", "--processes", "1", "--faults", str(len(kinds))]
    command += [] if csv is None else ["--csv", csv]
    done = subprocess.run([*command, "--keep", tmp_path, "--kinds", *kinds], capture_output=True, text=True)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == any(row["lost"] or row["left_behind"] for row in report["kinds"])
    return report


def test_runs_survive_faults(tmp_path: Path) -> None:
    report = chaos(tmp_path, *FAULTS)
    assert report["bad"] == []
    assert sum(row["tried"] for row in report["kinds"]) == len(FAULTS)


def test_what_is_lost_and_left_is_seen(tmp_path: Path) -> None:
    (bad,) = chaos(tmp_path, "damage", csv=tmp_path / "report.csv")["bad"]
    assert "it cannot go on: 4" in bad["lost"][0]
    assert bad["left"] == ["tmp/left"]
    again = chaos(tmp_path, "damage", csv=tmp_path / "report.csv")
    assert again["bad"] == [] and again["kinds"][0]["tried"] == again["kinds"][0]["lost"] == 1, "it has a row"
