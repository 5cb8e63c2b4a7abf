"""The guide to MagicPrompt, in both languages: what it says to run runs, on prompts that are made here, and says what
it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.guides import Reader, commands, sections
from paddock.testing.samples.texts import STYLES, write_prompts
from paddock.testing.tiny import losses

FOLDER = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = FOLDER / "magicprompt.md"
MINUTES, LAYOUTS, WEIGHTS, OWN, KNOW = range(1, 6)
"""Its sections."""
SMALLER = [
    *("--model.layers", "2", "--model.hidden", "32", "--model.heads", "4", "--model.vocab", "512"),
    *("--data.sequence-length", "16", "--steps", "2", "--evaluate.every", "1", "--log.every", "1"),
]
"""What is added to every training, so that it takes a moment."""


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Reader:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_prompts(Path("prompts.txt"))
    return Reader(GUIDE, run, capfd)


def test_both_languages_run_and_show_the_same() -> None:
    assert sections(GUIDE) == sections(FOLDER / "magicprompt.zh.md")
    assert len(sections(GUIDE)) == 6


def test_every_command_on_a_few_prompts(reader: Reader) -> None:
    reader.follow(MINUTES, smaller=SMALLER)
    assert reader.printed["generate runs/prompts"].count("a cat in a garden,") == 4
    reader.follow(WEIGHTS, smaller=SMALLER)
    assert "written" in reader.names
    reader.follow(OWN, smaller=SMALLER)
    reader.follow(KNOW, smaller=SMALLER)


def test_the_layouts_have_the_same_losses(reader: Reader) -> None:
    reader.follow(LAYOUTS, smaller=SMALLER)
    words = [command.words for block in sections(GUIDE)[LAYOUTS] for command in commands(block)]
    runs = [Path(word) for line in words for word in line if word.startswith("runs/")]
    alone, *others = (losses(place) for place in runs)
    assert len(others) == 2
    for found in others:
        assert found == pytest.approx(alone, rel=1e-5)


@pytest.mark.slow
def test_a_few_minutes_teach_the_manner_of_the_prompts(reader: Reader) -> None:
    reader.follow(MINUTES)
    at = losses(Path("runs/prompts"))
    assert at[-1] < 0.5 * at[0]
    before, after = (reader.printed[f"generate runs/{name}"] for name in ("before", "prompts"))
    known = STYLES.split("|")
    assert not any(style in before for style in known) and any(style in after for style in known)
