"""The guide to alignment: its commands and its code run as they are written, and what it shows is what they say."""

from __future__ import annotations

import os
import re
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.guides import comparable
from paddock.testing.simulated import Injection, write_package

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "alignment.md"


def execute(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    capsys.readouterr()
    code = run(shlex.split(command)[1:])
    captured = capsys.readouterr()
    return code, (captured.out + captured.err).splitlines()


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (_, commands), (_, aligned), (_, script), (_, refused), *layers, (_, records) = fenced
    assert [kind for kind, _ in fenced] == ["sh", "", "python", "", "", "", "sh"] and len(layers) == 2
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
    for command in records.splitlines():
        code, said = execute(command, capsys)
        assert code == 0, f"{command}\n{said}"
    assert said[0].startswith("aligned: other.layers")


def test_a_wrong_operator_is_named(tmp_path: Path) -> None:
    """On a simulated device whose GELU is wrong; figures are rounding's, and not looked at."""
    text = GUIDE.read_text(encoding="utf-8")
    shown, scripted = re.findall(
        r"^```\n\$ (p[^\n]*(?:--layers|SCRIPT)[^\n]*\n.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    write_package(tmp_path / "site", "npu", injections=[vars(Injection("aten.gelu", None, 0.002))])
    places = os.pathsep.join([str(tmp_path / "site"), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": places}
    how = {"cwd": tmp_path, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command, *lines = shown.splitlines()
    told = subprocess.run([sys.executable, "-m", *shlex.split(command)], **how)  # type: ignore[call-overload]
    assert told.returncode == 7, told.stderr
    said = [*told.stdout.splitlines(), *told.stderr.splitlines()[-2:]]
    assert sorted(map(_words, said)) == sorted(map(_words, lines))  # of operators that are equally wrong, any is first
    (script,) = (tmp_path / "scripts").glob("*.py")
    alone = subprocess.run([sys.executable, str(script)], **how)  # type: ignore[call-overload]
    assert alone.stdout.splitlines() == scripted.splitlines()[1:], alone.stderr


def _words(line: str) -> str:
    """A line without its small figures, and what hangs on them: which tensor is worst."""
    line = re.sub(r"\d\.\d+(e[-+]\d\d)?", "#", line)
    line = re.sub(r"layers\.\d\.feed_forward$", "feed_forward", line)
    return re.sub(r"(gradient of|output) [^:]*:", "tensor:", line)


def test_its_picture_is_small() -> None:
    (link,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", GUIDE.read_text(encoding="utf-8"))
    picture = (GUIDE.parent / link).read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < 200_000
    assert min(struct.unpack(">II", picture[16:24])) > 400
