"""What a person at a terminal sees."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.telemetry.terminal import CONTROL
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


@pytest.mark.parametrize("words", [("zoo", "list"), ("flags", "zero")])
def test_pages_fit_a_narrow_terminal(words: tuple[str, str]) -> None:
    command = AtTerminal(words, columns=60)
    lines = b"".join(command).decode().replace("\r\n", "\n").rpartition(ERASE)[2].splitlines()
    assert command.code == 0 and len(lines) > 10
    assert max(map(len, lines)) <= 60


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
