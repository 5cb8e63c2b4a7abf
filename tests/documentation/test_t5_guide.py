"""The guide to T5 and mT5, in both languages: what it says to run runs as it is written, and says what it shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from paddock.cli.main import run
from paddock.testing.tiny import losses

FOLDER = Path(__file__).parents[2] / "docs" / "guides"
MINUTE, PAIRS, LIBAI, EIGHT, HUGGING_FACE = range(1, 6)
"""Its sections."""


class Block(NamedTuple):
    kind: str
    text: str


class Command(NamedTuple):
    words: list[str]
    shown: list[str]


def sections(name: str) -> list[list[Block]]:
    """What is fenced in every section."""
    parts = (FOLDER / name).read_text(encoding="utf-8").split("\n## ")
    fenced = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [[Block(*found) for found in fenced.findall(part)] for part in parts]


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append(Command(shlex.split(line[2:]), []))
        else:
            found[-1].shown.append(line)
    return found


class Reader:
    """Does in an empty folder what the guide says, section by section."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.printed: dict[str, str] = {}
        """What commands printed on standard output, by what comes behind `paddock`."""
        self.names: dict[str, Any] = {}
        """What the guide's Python has defined."""

    def follow(self, section: int, without: str = "nothing") -> None:
        """All of a section but commands with a certain word."""
        for block in sections("t5.md")[section]:
            if block.kind == "python":
                exec(block.text, self.names)  # noqa: S102  the guide is ours
            elif block.kind == "yaml":
                name = block.text.splitlines()[0].removeprefix("# ")
                Path(name).write_text(block.text, encoding="utf-8")
            elif block.kind == "json":
                Path("pairs.jsonl").write_text(block.text, encoding="utf-8")
            else:
                for command in commands(block):
                    if without not in command.words:
                        self.execute(command)

    def execute(self, command: Command) -> None:
        program, *words = command.words
        assert program == "paddock"
        self._capture.readouterr()
        assert run(words) == 0, f"{words}\n{self._capture.readouterr().err}"
        said = self._capture.readouterr()
        self.printed[" ".join(words[:2])] = said.out
        if words[0] == "generate":  # what is written depends on the machine's rounding
            assert said.out.strip()
            return
        exact = words[0] in ("data", "predict") or "--dry-run" in words
        lines = {comparable(line, exact) for line in (said.out + said.err).splitlines()}
        for line in command.shown:
            begin, cut, _ = line.partition("…")
            wanted = comparable(begin, exact)
            assert any(found.startswith(wanted) if cut else found == wanted for found in lines), (line, said)


def comparable(line: str, exact: bool) -> str:
    """A line without what differs from run to run: words with digits."""
    return line.rstrip() if exact else " ".join(re.sub(r"\S*\d\S*", "#", line).split())


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Reader:
    monkeypatch.chdir(tmp_path)
    return Reader(capfd)


def test_both_languages_run_and_show_the_same() -> None:
    assert sections("t5.md") == sections("t5.zh.md")
    assert len(sections("t5.md")) == 7


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
