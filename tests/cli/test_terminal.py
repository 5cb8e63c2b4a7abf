"""What a person at a terminal sees."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from paddock.telemetry.screen.terminal import CONTROL
from paddock.testing.commands import AtTerminal, paddock
from paddock.testing.tiny import TINY

ERASE = "\x1b[K"


def on_a_terminal(*arguments: str) -> str:
    """Run a command whose output and errors are a terminal, and return what appeared on it."""
    command = AtTerminal(arguments, columns=100)
    shown = b"".join(command).decode()
    assert command.code == 0, shown
    return shown


def test_generated_text_appears_as_it_comes(trained_run: Path) -> None:
    arguments = ["generate", str(trained_run), "--prompt", "The class", "--max-new-tokens", "12", "--seed", "1"]
    shown = on_a_terminal(*arguments).replace("\r\n", "\n")
    pieces = shown.split(ERASE)
    said = [piece for piece in pieces if piece.endswith("\r")]  # what comes next takes its place
    assert said and all("starting …" in piece for piece in said)
    written = subprocess.run([sys.executable, "-m", "paddock", *arguments], capture_output=True, check=True).stdout
    # So small a model writes control characters, too: they are shown by their numbers.
    expected = CONTROL.sub(lambda found: rf"\x{ord(found[0]):02x}", written.decode())
    assert "".join(piece for piece in pieces if piece not in said) == expected


def test_training_shows_a_card_a_bar_and_an_end(tmp_path: Path) -> None:
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", on_a_terminal("train", *TINY, "--run-dir", str(tmp_path / "run")))
    assert "parameters" in shown and "global 8 = micro 2 × data 1 × accumulation 4" in shown
    assert "6/6" in shown and "tokens/s" in shown and "━" in shown
    assert all(f"{words} …" in shown for words in ("starting", "preparing data", "building the model"))
    assert "done" in shown and f"paddock generate {tmp_path / 'run'}" in re.sub(r"\s+", " ", shown)


def narrow(words: Sequence[str], cwd: Path | None = None) -> list[str]:
    """What a command shows on a terminal of 60 columns."""
    command = AtTerminal(words, columns=60, cwd=cwd)
    lines = b"".join(command).decode().replace("\r\n", "\n").rpartition(ERASE)[2].splitlines()
    assert command.code == 0, lines
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


PAGES = [
    "--help",
    "zoo --help",
    "train --help",
    "train --help optimizer",
    "zoo list",
    "zoo show gpt2/117m",
    "flags zero",
    "train gpt2/tiny --dry-run",
    "train gpt2/13b --dry-run --world 32",
]


@pytest.mark.parametrize("words", PAGES)
def test_pages_fit_a_narrow_terminal(words: str) -> None:
    lines = narrow(words.split())
    assert len(lines) > 8
    assert max(map(len, lines)) <= 60


def test_a_run_on_a_narrow_terminal(trained_run: Path, tmp_path: Path) -> None:
    """But for commands, which stay in one piece; one that was started by `python -m paddock` is told as `paddock`."""
    shutil.copytree(trained_run, tmp_path / "run", symlinks=True)
    [environment] = tmp_path.glob("run/attempts/*/environment.json")
    said = json.loads(environment.read_text())
    environment.write_text(json.dumps(said | {"command": ["/lib/paddock/__main__.py", "train", "x", *["--flag"] * 20]}))
    lines = narrow(["runs", "show", "run"], tmp_path)
    assert max(len(line) for line in lines if "paddock" not in line) <= 60
    assert any("paddock train x --flag" in line for line in lines)


def test_remarks_are_broken_between_words(tmp_path: Path) -> None:
    """Where nobody looks at a terminal they stay in one line."""
    (tmp_path / "my.txt").write_text("A first line.\nA second one.\n")
    words = ["train", *TINY, "--data.source", "text", "--data.path", "my.txt", "--steps", "2"]
    shown = b"".join(AtTerminal(words, columns=60, cwd=tmp_path)).decode()
    [remark] = re.findall(r"^.*(prepared 2 documents[^/]*kept in)", shown.replace("\r\n", "\n"), re.MULTILINE)
    assert "\n" in remark and all(len(line) <= 60 for line in remark.splitlines())
    assert re.search(r"\(--data.document file: a file each\): \d+ tokens, kept in$", " ".join(remark.split()))
    (tmp_path / "my.txt").write_text("A first line.\nA third one.\n")
    assert ", a line each (--data.document file: a file each): " in paddock(*words, cwd=tmp_path).stderr
