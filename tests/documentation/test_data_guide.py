"""The guide to data: what it says of text, of the tokenizer beside a corpus and of training runs as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.guides import Command, commands, sections

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "data.md"
STRAIGHT, LINES, PREPROCESS, LOOK, TRAIN = range(1, 6)
"""Its sections."""
SMALLER = [
    *("--model.layers", "2", "--model.hidden", "32", "--model.heads", "4", "--data.sequence-length", "32"),
    *("--steps", "2"),
]


def commands_of(section: int) -> list[Command]:
    found = [commands(block) for block in sections(GUIDE)[section] if block.text.startswith("$ ")]
    return [command for block in found for command in block]


def test_from_text_and_from_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for section in (STRAIGHT, LINES):
        for block in sections(GUIDE)[section]:
            if block.kind == "python":
                exec(block.text, {})  # noqa: S102  the guide is ours
    said = []
    for command in [*commands_of(STRAIGHT), commands_of(PREPROCESS)[0], *commands_of(LOOK), *commands_of(TRAIN)]:
        program, *words = command.words
        assert program == "paddock"
        assert run([*words, *(SMALLER if words[0] == "train" else [])]) == 0, capfd.readouterr().err
        said.append("".join(capfd.readouterr()))
    straight, bert, t5, preprocess, inspect, _, train, generate = said
    for told in (straight, bert, t5):
        assert "data: text notes/*.txt, a document a file\n" in told and "prepared 79 documents" in told
    assert 'next: paddock predict runs/bert "… [MASK] …"\n' in bert
    assert 'next: paddock generate runs/t5 --prompt "… <extra_id_0> …"\n' in t5
    assert "next: paddock data inspect reference_text_document\n" in preprocess
    assert "  Assert statements are a convenient way" in inspect
    assert "note: the tokenizer is that of reference_text_document\n" in train
    assert generate.startswith("The class")
