"""Ways to go a path: by a pipe, and at a terminal that shows what a person would see in the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from paddock.testing.commands import AtTerminal, paddock


class Said(NamedTuple):
    """What came of a command."""

    code: int
    text: str
    """Standard output and standard error; at a terminal, what stands there when it has ended."""

    def suggests(self, expression: str) -> str:
        """What the error says to do, found by an expression with one group."""
        fix = re.search(r"^  fix: (.*(?:\n(?!\w+:).*)*)", self.text, re.MULTILINE)
        assert fix is not None, self.text
        found = re.search(expression, fix[1].replace("\n", " "))
        assert found is not None, fix[1]
        return found[1]


Do = Callable[..., Said]
CONTROL = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]")


class Terminal:
    """A screen that is as long as it has to be. What it does not know is an error: it may show anything."""

    def __init__(self, columns: int) -> None:
        self._columns, self._row, self._column = columns, 0, 0
        self._cells: dict[tuple[int, int], str] = {}

    def write(self, text: str) -> None:
        position = 0
        while position < len(text):
            found = CONTROL.match(text, position)
            assert found is not None, repr(text[position : position + 20])
            self._do(found)
            position = found.end()

    def lines(self) -> list[str]:
        rows = range(1 + max((row for row, _ in self._cells), default=-1))
        return ["".join(self._cells.get((row, at), " ") for at in range(self._columns)).rstrip() for row in rows]

    def _do(self, found: re.Match[str]) -> None:
        number, kind = found[1], found[2]
        if kind is None:
            self._type(found[0])
        elif kind == "A":
            self._row = max(0, self._row - int(number or 1))
        elif kind == "K":
            self._erase(0 if number == "2" else self._column)
        else:
            assert kind == "m" or (kind in "hl" and number == "?25"), repr(found[0])  # colours, and the cursor's

    def _type(self, character: str) -> None:
        if character == "\n":
            self._row += 1
        elif character == "\r":
            self._column = 0
        else:
            if self._column == self._columns:
                self._row, self._column = self._row + 1, 0
            self._cells[self._row, self._column] = character
            self._column += 1

    def _erase(self, begin: int) -> None:
        for column in range(begin, self._columns):
            self._cells.pop((self._row, column), None)


@pytest.fixture
def by_a_pipe() -> Do:
    def do(*words: str) -> Said:
        done = paddock(*words)
        return Said(done.returncode, done.stdout + done.stderr)

    return do


@pytest.fixture
def at_a_terminal() -> Callable[[int], Do]:
    """Of so many columns."""

    def of(columns: int) -> Do:
        return lambda *words: _at_a_terminal(columns, words)

    return of


def _at_a_terminal(columns: int, words: tuple[str, ...]) -> Said:
    command = AtTerminal(words, columns, rows=50)
    terminal = Terminal(columns)
    terminal.write(b"".join(command).decode())
    assert command.code is not None
    return Said(command.code, "\n".join(terminal.lines()))
