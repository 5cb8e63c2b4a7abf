"""What a command says it is doing: at the last line of a terminal, and in lines elsewhere."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from paddock import phases
from paddock.launch import run as launching
from paddock.launch.options import LaunchOptions
from paddock.phases import LINE_EVERY, current, over, phase, shown_elsewhere


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal; asked for in the test itself, since pytest takes it back after fixtures."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("RANK", raising=False)
    return screen


def test_on_a_terminal_the_next_words_take_the_place_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with phase("starting"):
        with phase("preparing data"):
            assert current() == "preparing data"
        print("a note that is longer", file=terminal)
    written = terminal.getvalue()
    assert written.split("\x1b[K")[:4] == [
        "",
        "starting …\r",
        "preparing data …\r",
        "starting …\ra note that is longer\n",
    ]
    assert written.endswith("\x1b[K") and current() == ""


def test_counted_work_is_counted_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with phase("evaluating") as told:
        told.update(3, 10)
        assert current() == "evaluating 3/10"
    assert "\x1b[Kevaluating 3/10 …\r" in terminal.getvalue()


def test_something_else_ends_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal_of(monkeypatch)
    with phase("starting"):
        over()
        assert current() == ""
        with phase("saving"):
            assert current() == "saving"
        assert current() == ""


def test_a_live_display_shows_it_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with shown_elsewhere():
        before = terminal.getvalue()
        with phase("saving"):
            assert current() == "saving"
        assert terminal.getvalue() == before


def test_a_line_where_torch_is_about_to_be_imported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none, where all was over before."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    finders = list(sys.meta_path)
    with phase("starting", with_torch=True):
        find_spec("json.tool")
    assert capsys.readouterr() == ("", "")
    with phase("starting", with_torch=True):
        find_spec("torch")
        assert capsys.readouterr() == ("", "starting\n")
        find_spec("torch")
    with phase("starting", with_torch=True), phase("preparing data", at_once=True):
        find_spec("torch")
    assert capsys.readouterr() == ("", "starting\npreparing data\n") and sys.meta_path == finders


def test_a_line_at_once_off_a_terminal_and_no_second_one(capsys: pytest.CaptureFixture[str]) -> None:
    with phase("starting", at_once=True), phase("starting", at_once=True), phase("preparing data", at_once=True):
        pass
    assert capsys.readouterr() == ("", "starting\npreparing data\n")


def test_lines_now_and_then_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with phase("evaluating", clock=lambda: now) as told:
        for done in range(1, 31):
            now += LINE_EVERY / 10
            told.update(done, 30)
    assert capsys.readouterr().err == "evaluating 10/30\nevaluating 20/30\nevaluating 30/30\n"


def test_what_takes_long_is_told_though_nothing_is_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "LINE_EVERY", 0.0)
    with phase("saving") as saving:
        while not saving.was_told:
            pass
    assert capsys.readouterr().err == "saving\n"


def test_only_the_first_process_speaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with phase("starting", at_once=True):
        assert current() == "starting"
    assert capsys.readouterr() == ("", "")


def test_a_job_that_has_ended_is_starting_no_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its processes have shown what there is; whoever started them may still be uploading."""
    monkeypatch.setattr(launching, "run_attempts", lambda job: current())
    terminal = terminal_of(monkeypatch)
    with phase("starting", at_once=True):
        said = launching.run("paddock.testing.jobs:report_job", {}, LaunchOptions(nproc_per_node=2), tmp_path)
        assert said == "starting 2 processes" and current() == ""
        assert terminal.getvalue().endswith("starting 2 processes …\r\x1b[K\x1b[K")
