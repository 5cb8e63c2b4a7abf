"""The guide to generation: its commands run as they are written, and every layout writes the same."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "generation.md"


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    printed: dict[str, str] = {}
    for command in "".join(blocks).splitlines():
        if command.startswith("python "):
            program, _, file = command.partition(" > ")
            code = shlex.split(program)[2].replace("\\n", "\n".encode("unicode_escape").decode())
            written = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            Path(file).write_bytes(written.stdout)
            continue
        capfd.readouterr()
        assert run(shlex.split(command)[1:]) == 0, command
        printed[command] = capfd.readouterr().out
    (program,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    subprocess.run([sys.executable, "-c", program], check=True)
    alone, *others = [printed[command] for command in printed if "12 --n" in command and '"If a class"' in command]
    assert alone.startswith("If a class") and others == [alone]
    texts = [json.loads(line) for line in Path("texts.jsonl").read_text(encoding="utf-8").splitlines()]
    (together,) = [printed[command] for command in printed if "prompts.txt" in command and "--nproc" in command]
    assert together == "\n\n".join(text["prompt"] + text["text"] for text in texts) + "\n"
