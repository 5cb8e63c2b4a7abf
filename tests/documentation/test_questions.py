"""The questions: their commands run as they are written, errors read as they are shown, in both languages."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.guides import sections

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    return [block.text for part in sections(DOCS / page) for block in part if block.kind == kind]


def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = "".join(blocks("faq.md", "sh")).splitlines()
    assert len(commands) > 8
    for command in commands:
        capsys.readouterr()
        try:
            code = run(shlex.split(command)[1:])
        except SystemExit as end:  # a page of help
            code = int(end.code or 0)
        assert code == 0, f"{command}\n{capsys.readouterr().err}"


def test_errors_read_as_they_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    shown = blocks("faq.md", "")
    assert len(shown) == 2
    for block in shown:
        command, *lines = block.removeprefix("$ paddock ").splitlines()
        assert run(shlex.split(command)) == 2
        said = capsys.readouterr()
        assert set(lines) <= set((said.out + said.err).splitlines()), command


def test_both_languages_ask_the_same() -> None:
    for kind in ("sh", ""):
        assert blocks("faq.md", kind) == blocks("faq.zh.md", kind)
    headings = [re.findall(r"^#+ ", (DOCS / page).read_text("utf-8"), re.MULTILINE) for page in ("faq.md", "faq.zh.md")]
    assert headings[0] == headings[1]
