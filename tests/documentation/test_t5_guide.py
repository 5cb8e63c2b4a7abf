"""The guide to T5 and mT5, in both languages: what it says to run runs as it is written, and says what it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.guides import Command, Reader, sections
from paddock.testing.tiny import losses

FOLDER = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = FOLDER / "t5.md"
MINUTE, PAIRS, LIBAI, EIGHT, HUGGING_FACE = range(1, 6)
"""Its sections."""


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Reader:
    monkeypatch.chdir(tmp_path)
    return Reader(GUIDE, run, capfd)


def test_both_languages_run_and_show_the_same() -> None:
    assert sections(GUIDE) == sections(FOLDER / "t5.zh.md")
    assert len(sections(GUIDE)) == 7


def test_libais_workflow_and_hugging_face_weights(reader: Reader) -> None:
    reader.follow(LIBAI)
    reader.follow(HUGGING_FACE)
    best, second = json.loads(reader.printed["generate runs/continued"])
    assert best["text"] != second["text"] and best["prompt"] == second["prompt"]
    asked = ["--prompt", best["prompt"], "--max-new-tokens", "8"]
    reader.execute(Command(["paddock", "generate", "exported", *asked], []))
    theirs = reader.names["tokenizer"].decode(reader.names["written"])
    spoken = re.sub(r"<pad>|</s>|\s", "", theirs)
    assert spoken and spoken == re.sub(r"\s", "", reader.printed["generate exported"])
    trimmed = json.loads(Path("trimmed/config.json").read_text())
    assert trimmed["vocab_size"] < 512


def test_pairs_of_your_own(reader: Reader) -> None:
    reader.follow(PAIRS, without="runs/reverse")  # `predict` says exactly what is shown
    assert scores(reader.printed["evaluate runs/pairs"]) == pytest.approx({"exact_match": 100, "bleu": 100})


@pytest.mark.slow
def test_a_minute_and_words_in_the_opposite_order(reader: Reader) -> None:
    reader.follow(MINUTE)
    assert "<extra_id_0>" in reader.printed["generate runs/fill"]
    at = losses(Path("runs/fill"))
    assert at[-1] < 0.75 * at[0]
    reader.follow(PAIRS)
    assert scores(reader.printed["evaluate runs/reverse"])["exact_match"] > 95


def scores(printed: str) -> dict[str, float]:
    found = dict(re.findall(r"val\.(\w+) ([\d.]+)", printed))
    return {name: float(found[name]) for name in ("exact_match", "bleu")}


@pytest.mark.slow
def test_eight_processes(reader: Reader) -> None:
    reader.follow(LIBAI)
    reader.follow(EIGHT)
    one = losses(Path("runs/chinese"))
    for name in ("data8", "pipeline8", "cube"):
        assert losses(Path("runs") / name) == pytest.approx(one, rel=1e-3)
