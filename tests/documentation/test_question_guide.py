"""The guide to question answering: its commands run as they are written, and say what it shows."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.testing.commands import paddock
from paddock.testing.samples.texts import write_squad

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "question-answering.md"


@pytest.mark.slow
def test_the_first_minute(tmp_path: Path) -> None:
    section = GUIDE.read_text(encoding="utf-8").split("\n## ")[1]
    blocks = [block for block in re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)]
    training, asking, lines, answering = blocks
    (tmp_path / "asked.jsonl").write_text(lines, encoding="utf-8")
    shown = {}
    for block in (training, asking, answering):
        for command in re.findall(r"^\$ (paddock .*)$", block, re.MULTILINE):
            result = paddock(*shlex.split(command)[1:], cwd=tmp_path)
            assert result.returncode == 0, result.stderr
            shown[block] = result
    exact = re.findall(r"'exact_match': ([0-9.]+)", shown[training].stderr)
    assert float(exact[-1]) > 95 and len(exact) == len(re.findall("'exact_match'", training))
    expected = json.loads(asking.splitlines()[-1])[0]
    found = json.loads(shown[asking].stdout)[0]
    assert {**found, "score": 0} == {**expected, "score": 0}
    wanted = [json.loads(line) for line in answering.splitlines() if line.startswith("{")]
    given = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    for one, other in zip(given, wanted, strict=True):
        assert one["id"] == other["id"] and one["answers"][0]["text"] == other["answers"][0]["text"]


@pytest.mark.slow
def test_in_python(tmp_path: Path) -> None:
    section = GUIDE.read_text(encoding="utf-8").split("\n## ")[2]
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    write_squad(tmp_path / "squad")
    script = f"{code}\nimport json\nprint(json.dumps([metrics, answers]))\n"
    words = [sys.executable, "-c", script]
    result = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=os.environ)
    assert result.returncode == 0, result.stderr
    metrics, answers = json.loads(result.stdout)
    assert metrics["f1"] > 95
    (expected,) = json.loads(re.findall(r"`answers` is `(.*?)`", section)[0])
    assert [{**answer, "score": 0} for answer in answers] == [{**expected, "score": 0}]
