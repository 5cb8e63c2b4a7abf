"""Results for scripts on standard output, words for people on standard error: of training, converting, and failing."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from paddock.cli.main import report, run
from paddock.errors import ConfigError
from paddock.testing.commands import paddock
from paddock.testing.tiny import TINY


def test_training_ends_with_its_directory_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run"
    assert run(["train", *TINY, "--run-dir", str(place)]) == 0
    told = capsys.readouterr()
    assert told.out == f"{place}\n"
    lines = told.err.splitlines()
    assert lines[:3] == ["starting", "preparing data", "building the model"]
    assert run(["resume", str(place), "--steps", "7", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["run_dir"] == str(place) and result["step"] == 7 and result["stopped"] is None
    assert result["loss"] > 0


def test_training_as_json_over_two_processes(tmp_path: Path) -> None:
    flags = ["--nproc-per-node", "2", "--steps", "2", "--evaluate.every", "None", "--json"]
    done = paddock("train", *TINY, *flags, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step"] == 2
    assert done.stderr.startswith("starting\npreparing data\nstarting 2 processes\n")
    assert "Warning" not in done.stderr


def test_converting_as_json(tmp_path: Path, trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", str(trained_run), str(tmp_path / "out"), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == {"destination": str(tmp_path / "out"), "form": "huggingface", "notes": []}
    assert told.err == "converting\n"


def test_what_nobody_expected_is_json_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(arguments: list[str]) -> None:
        raise KeyError("x")

    monkeypatch.setattr("paddock.cli.doctor.main", broken)
    with pytest.raises(KeyError):
        run(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["code"] == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_errors_are_coloured_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ConfigError("a = 1", why="it is 2: why: not", fix="b")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    shown = []
    for stream in (Terminal(), io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        report(error)
        shown.append(stream.getvalue())
        if len(shown) == 2:
            monkeypatch.setenv("NO_COLOR", "1")
    plain = "error: a = 1\n  why: it is 2: why: not\n  fix: b\n"
    assert shown[1] == shown[2] == plain
    assert "\x1b[1;31merror:\x1b[0m a = 1" in shown[0]
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown[0]) == plain


def test_errors_are_broken_between_words_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ConfigError(
        "steps = many",
        why="it is a number of steps that the run makes, and not a word for it",
        fix="`paddock train gpt2/tiny --help optimizer` lists what there is",
    )
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    shown = []
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        report(error)
        shown.append(stream.getvalue().splitlines())
    narrow, whole = shown
    assert narrow[:3] == [
        "error: steps = many",
        "  why: it is a number of steps that the",
        "       run makes, and not a word for it",
    ]
    assert narrow[3:] == ["  fix:", "       `paddock train gpt2/tiny --help optimizer`", "       lists what there is"]
    assert whole == f"error: {error}".splitlines()


def test_no_warning_of_a_library_in_a_run(tmp_path: Path) -> None:
    done = paddock("train", *TINY, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0 and "Warning" not in done.stderr and "warnings.warn" not in done.stderr
