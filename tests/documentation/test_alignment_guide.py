"""The guide to alignment: its commands and its code run as they are written, and what it shows is what they say."""

from __future__ import annotations

import re
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.guides import comparable

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "alignment.md"


def execute(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = run(shlex.split(command)[1:])
    captured = capsys.readouterr()
    return code, (captured.out + captured.err).splitlines()


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (_, commands), (_, aligned), (_, script), (_, refused) = fenced
    assert [kind for kind, _ in fenced] == ["sh", "", "python", ""]
    monkeypatch.chdir(tmp_path)
    for command in commands.splitlines():
        code, said = execute(command, capsys)
        assert code == 0, f"{command}\n{said}"
    shown = [comparable(line, False) for line in aligned.splitlines()]
    assert shown == [comparable(line, False) for line in said if not line.startswith("written: ")]
    assert (tmp_path / "report.html").is_file()
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    command, *lines = refused.removeprefix("$ ").splitlines()
    code, said = execute(command, capsys)
    assert code == 7 and said == lines


def test_its_picture_is_small() -> None:
    (link,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", GUIDE.read_text(encoding="utf-8"))
    picture = (GUIDE.parent / link).read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < 200_000
    assert min(struct.unpack(">II", picture[16:24])) > 400
