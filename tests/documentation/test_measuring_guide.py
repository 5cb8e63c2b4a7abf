"""The guide to measuring: its code and its commands run, one after the other, as they are written."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from paddock.cli.main import run

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "measuring.md"


def names(text: str) -> list[str]:
    """What is measured, on lines that say so."""
    return re.findall(r"(val\.\w+|number correct|avg accuracy)\b", text)


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    kinds = [kind for kind, _ in fenced]
    assert kinds == ["sh", "sh", "", "python", "sh", "", "sh", "", "", "yaml", "sh"]
    monkeypatch.chdir(tmp_path)
    said = ""
    for kind, block in fenced:
        if kind == "python":
            subprocess.run([sys.executable, "-c", block], cwd=tmp_path, check=True)
        elif kind == "yaml":
            (tmp_path / "tasks").mkdir()
            (tmp_path / "tasks" / "passages.yaml").write_text(block)
        elif kind == "":
            assert set(names(block)) <= set(names(said)), "it shows what the commands before it say"
        else:
            said = "".join(execute(command, tmp_path, capsys) for command in block.splitlines())
    missed = [json.loads(line) for line in (tmp_path / "missed.jsonl").read_text().splitlines()]
    (shown,) = (json.loads(block) for _, block in fenced if block.startswith("{"))
    assert all(list(row) == list(shown) for row in missed)
    (same,) = (row for row in missed if row["line"] == shown["line"])
    assert (same["context"], same["expected"]) == (shown["context"], shown["expected"])


def execute(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    words = shlex.split(command)
    capsys.readouterr()
    if words[0] == "paddock":
        assert run(words[1:]) == 0, command
        captured = capsys.readouterr()
        return captured.out + captured.err
    assert words[:3] == ["python", "-m", "paddock.evaluation.harness"]
    if find_spec("lm_eval") is None:  # `make test-harness` has it
        return ""
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home")}
    result = subprocess.run([sys.executable, *words[1:]], cwd=folder, capture_output=True, text=True, env=offline)
    assert result.returncode == 0 and "|passages" in result.stdout, result.stderr
    return result.stdout
