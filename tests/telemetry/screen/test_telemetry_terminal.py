"""Progress in bytes: now and then a line off a terminal, never on standard output."""

from __future__ import annotations

import builtins
import io

import pytest
from rich.console import Console

from paddock.telemetry.screen import terminal as module
from paddock.telemetry.screen.terminal import byte_progress_bar, print_line, progress_bar, stderr_console


def test_lines_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with byte_progress_bar("merging", 1_000_000_000, clock=lambda: now) as progress:
        for _ in range(20):
            now += 1.0
            progress(50_000_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "merging: 500 MB of 1.0 GB, 50.0 MB/s, 10s left",
        "merging: 1.0 GB of 1.0 GB, 50.0 MB/s, 0s left",
    ]


def test_lines_about_counted_work_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with progress_bar("evaluate", clock=lambda: now) as progress:
        for done in range(1, 5):
            now += 6.0
            progress(done * 25, 100)
    assert capsys.readouterr() == ("", "evaluate: 50 of 100, 12s left\nevaluate: 100 of 100, 0s left\n")


def test_short_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with byte_progress_bar("verifying", 10) as progress:
        progress(10)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr(module, "stderr_console", lambda: console)
    with byte_progress_bar("merging", 2_000_000) as progress:
        progress(1_000_000)
    assert "merging" in terminal.getvalue() and "1.0/2.0 MB" in terminal.getvalue()
    assert capsys.readouterr() == ("", "")


def test_lines_in_a_notebook_are_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where rich would make HTML of each."""
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    assert Console().is_jupyter and not stderr_console().is_jupyter
    print_line(stderr_console(), "step 1/4  loss 7.9")
    assert capsys.readouterr() == ("", "step 1/4  loss 7.9\n")
