"""The guide to images: its code and its commands run, one after the other, as they are written."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "images.md"


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fenced = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in fenced] == ["sh", "python", "sh", "sh"]
    monkeypatch.chdir(tmp_path)
    for kind, block in fenced:
        if kind == "python":
            subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True)
            continue
        for command in block.splitlines():
            words = shlex.split(command)
            assert words[0] == "paddock"
            assert run(words[1:]) == 0, command
    rows = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    assert {row["class"] for row in rows} == {"disc", "ring", "square"} and len(rows) == 30 * 3
