"""The README's tour as somebody goes it for the first time: with the usual mistakes, each mended as its error says."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import ConfigError
from paddock.testing.samples.texts import sample_texts
from paddock.testing.tiny import TINY

UNDER_WAY = ("starting …", "preparing data …", "building the model …", "evaluating", "saving …")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = (text.replace("\x0c", " ") for text in sample_texts(100))
    Path("my.txt").write_text("\n".join(texts), encoding="utf-8")


def go(do: Callable[..., Any]) -> list[str]:
    """The whole way; returns what was seen of what worked."""
    wrong = ["train", *(word.replace("--steps", "--stpes") for word in TINY), "--run-dir", "runs/tour"]
    told = refused(do(*wrong))
    right = ["train", *TINY, "--run-dir", "runs/tour"]
    assert told.suggests(r'did you mean "(\S+)"') == "--steps"

    told = refused(do(*right, "--data", "my.txt"))
    right += shlex.split(told.suggests(r"set (.*)"))

    told = refused(do(*right, "--device", "gpu"))
    assert told.suggests(r'did you mean "(\w+)"') == "cuda"
    seen = [worked(do(*right, "--device", "cpu"))]

    told = refused(do("evaluate", "runs/tuor"))
    run = told.suggests(r'did you mean "(\S+)"')
    seen.append(worked(do("evaluate", run)))
    assert "val.perplexity" in seen[-1] and "\nruns/tour/checkpoints/step-00000006 on text my.txt" in seen[-1]

    told = refused(do("train", run))
    goes_on = told.suggests(r"paddock (resume [\w/]+)").split()
    seen.append(worked(do(*goes_on, "--steps", "8")))
    assert "8/8" in seen[-1]
    return seen


def refused(said: Any) -> Any:
    assert said.code == ConfigError.exit_code, said.text
    lines = said.text.splitlines()
    assert sum(line.startswith("error: ") for line in lines) == 1 and len(lines) < 12
    assert not any(line.startswith(words) for line in lines for words in UNDER_WAY if words.endswith("…"))
    return said


def worked(said: Any) -> str:
    assert said.code == 0, said.text
    return said.text


def test_by_a_pipe(by_a_pipe: Callable[..., Any]) -> None:
    train, evaluate, resume = go(by_a_pipe)
    assert "data: text my.txt" in train and "next: paddock evaluate runs/tour" in train
    assert "\x1b" not in train + evaluate + resume


@pytest.mark.parametrize("columns", [60, pytest.param(120, marks=pytest.mark.slow)])
def test_at_a_terminal(at_a_terminal: Callable[[int], Callable[..., Any]], columns: int) -> None:
    train, evaluate, resume = go(at_a_terminal(columns))
    for screen in (train, evaluate, resume):
        lines = screen.splitlines()
        assert not any(words in line for line in lines for words in UNDER_WAY), screen
        assert max(map(len, lines)) <= columns
    for screen in (train, resume):
        assert_cards_are_whole(screen.splitlines())
        assert screen.count("━") > 0 and " done " in screen  # the bar, full
    assert "6/6" in train


def assert_cards_are_whole(lines: list[str]) -> None:
    """Of what is about to happen and what came of it: every line of a card is as long as its first."""
    tops = [number for number, line in enumerate(lines) if line.startswith("╭")]
    assert len(tops) == 2
    for top in tops:
        end = next(number for number in range(top, len(lines)) if lines[number].startswith("╰"))
        card = lines[top : end + 1]
        assert {len(line) for line in card} == {len(lines[top])}
        assert all(line.startswith("│") and line.endswith("│") for line in card[1:-1])
