"""A guide as somebody reads it: does in an empty folder what it says, and compares what it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Block(NamedTuple):
    """What is between two fences, and what it is said to be."""

    kind: str
    text: str


class Command(NamedTuple):
    """A command, and the lines that the guide shows of what it says."""

    words: list[str]
    shown: list[str]


class Capture(Protocol):
    """What pytest catches of standard output and standard error."""

    def readouterr(self) -> Any: ...


def sections(guide: Path) -> list[list[Block]]:
    """What is fenced in every section."""
    parts = guide.read_text(encoding="utf-8").split("\n## ")
    fenced = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [[Block(*found) for found in fenced.findall(part)] for part in parts]


def commands(block: Block) -> list[Command]:
    """The commands of a block, each with what follows it."""
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append(Command(shlex.split(line[2:]), []))
        else:
            found[-1].shown.append(line)
    return found


class Reader:
    """Does in the current folder what a guide says, section by section."""

    def __init__(self, guide: Path, run: Callable[[list[str]], int], capture: Capture) -> None:
        """`run` is what `paddock` does with the words behind it; it returns an exit code."""
        self._guide, self._run, self._capture = guide, run, capture
        self.printed: dict[str, str] = {}
        """What commands printed on standard output, by what comes behind `paddock`."""
        self.names: dict[str, Any] = {}
        """What the guide's Python has defined."""

    def follow(self, section: int, without: str = "nothing", smaller: Sequence[str] = ()) -> None:
        """All of a section but commands with a certain word; training gets the words of `smaller` added."""
        for block in sections(self._guide)[section]:
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
                        self.execute(command, smaller)

    def execute(self, command: Command, smaller: Sequence[str] = ()) -> None:
        """Run a command; every line that the guide shows of it must be said."""
        program, *words = command.words
        assert program == "paddock"
        added = smaller if words[0] == "train" and "--dry-run" not in words else ()
        self._capture.readouterr()
        assert self._run([*words, *added]) == 0, f"{words}\n{self._capture.readouterr().err}"
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
