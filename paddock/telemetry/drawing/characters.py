"""Plots in the characters of a terminal, for people who came over ssh: dots of Braille, eight in a character.

Colours tell curves apart. Where there are none, each curve has a mark of its own, a character wide; where the terminal
has no such characters, plain letters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich.text import Text

from paddock.telemetry.drawing.plots import Frame, Line, Plot, x_ticks

COLORS = ("cyan", "yellow", "green", "magenta", "red", "blue", "white", "bright_black")
"""Of curves, in their order."""
MARKS = "●○▲△■□◆◇"
LETTERS = "*o+x#@%&"
"""The same, of terminals that know no others."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a character, by row and column."""
BRAILLE = 0x2800
LEAST_WIDTH, LEAST_HEIGHT = 16, 4


@dataclass(frozen=True)
class Look:
    """What the terminal can show."""

    width: int = 80
    height: int = 16
    """Of the curves, without axes and names."""
    has_colors: bool = False
    has_unicode: bool = True


def draw_characters(plot: Plot, look: Look) -> list[Text]:
    """The lines of a plot: its title, the curves beside their axis, the steps, and the names of the curves."""
    frame = Frame.around(plot)
    height = max(look.height, LEAST_HEIGHT)
    names = {_row(frame, value, height): plot.y_format(value) for value in frame.y_ticks(max(height // 2, 3))}
    margin = max((len(name) for name in names.values()), default=0)
    width = max(look.width - margin - 2, LEAST_WIDTH)
    is_dotted = look.has_unicode and (look.has_colors or len(plot.lines) == 1)
    canvas = Canvas(width, height, is_dotted)
    for mark in plot.marks:
        if frame.x_range[0] <= mark.x <= frame.x_range[1]:
            canvas.upright(_share(frame, mark.x), "┊" if look.has_unicode else ":")
    for number, line in reversed(list(enumerate(plot.lines))):
        sign = (MARKS if look.has_unicode else LETTERS)[number % len(MARKS)]
        for (x, y), (next_x, next_y) in _segments(frame, line):
            canvas.line(x, y, next_x, next_y, number, sign)
    edge, corner, level = ("┤", "└", "─") if look.has_unicode else ("|", "+", "-")
    lines = [Text(plot.title, style="bold" if look.has_colors else "")]
    for row in range(height):
        head = f"{names.get(row, ''):>{margin}} {edge if row in names else ('│' if look.has_unicode else '|')}"
        lines.append(Text.assemble(head, *canvas.row(row, look.has_colors)))
    lines.append(Text(" " * margin + f" {corner}" + level * width))
    lines.append(Text(" " * (margin + 2) + _axis(frame, plot, width)))
    return [*lines, *_legend(plot.lines, look, is_dotted, margin + 2)]


@dataclass
class Canvas:
    """Characters that are drawn on, finer than they are: with dots in two columns and four rows."""

    width: int
    height: int
    is_dotted: bool
    cells: dict[tuple[int, int], tuple[int | str, int]] = field(default_factory=dict)
    """By row and column: dots or a mark, and the number of the curve; -1 of none."""

    def line(self, x: float, y: float, next_x: float, next_y: float, number: int, mark: str) -> None:
        """A straight piece of a curve, between places from 0 to 1."""
        across, down = (2, 4) if self.is_dotted else (1, 1)
        begin = x * (self.width * across - 1), (1 - y) * (self.height * down - 1)
        end = next_x * (self.width * across - 1), (1 - next_y) * (self.height * down - 1)
        count = max(1, math.ceil(max(abs(end[0] - begin[0]), abs(end[1] - begin[1]))))
        for step in range(count + 1):
            column = round(begin[0] + (end[0] - begin[0]) * step / count)
            row = round(begin[1] + (end[1] - begin[1]) * step / count)
            self._set(row, column, number, mark)

    def _set(self, row: int, column: int, number: int, mark: str) -> None:
        if not self.is_dotted:
            self.cells[row, column] = mark, number
            return
        place = row // 4, column // 2
        there, _ = self.cells.get(place, (0, number))
        self.cells[place] = (there if isinstance(there, int) else 0) | DOTS[row % 4][column % 2], number

    def upright(self, x: float, mark: str) -> None:
        """A vertical line behind all curves."""
        for row in range(self.height):
            self.cells[row, round(x * (self.width - 1))] = mark, -1

    def row(self, row: int, has_colors: bool) -> Iterator[tuple[str, str]]:
        """The characters of a row in pieces of one style."""
        cells = [self._cell(row, column, has_colors) for column in range(self.width)]
        for style, piece in groupby(cells, key=lambda cell: cell[1]):
            yield "".join(shown for shown, _ in piece), style

    def _cell(self, row: int, column: int, has_colors: bool) -> tuple[str, str]:
        shown, number = self.cells.get((row, column), (" ", None))
        style = COLORS[number % len(COLORS)] if has_colors and number is not None and number >= 0 else ""
        return chr(BRAILLE + shown) if isinstance(shown, int) else shown, style


def _row(frame: Frame, value: float, height: int) -> int:
    """The row of characters where a value is."""
    return min(height - 1, max(0, round((1 - frame.share(value)) * (height * 4 - 1)) // 4))


def _share(frame: Frame, x: float) -> float:
    low, high = frame.x_range
    return (x - low) / (high - low)


def _segments(frame: Frame, line: Line) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """The pieces of a curve between values that are numbers; a value alone is a piece, too."""
    before, was_joined = None, True
    for x, value in line.points.items():
        if not math.isfinite(value):
            if before is not None and not was_joined:
                yield before, before
            before, was_joined = None, True
            continue
        place = _share(frame, x), frame.share(value)
        if before is not None:
            yield before, place
        was_joined, before = before is not None, place
    if before is not None and not was_joined:
        yield before, before


def _axis(frame: Frame, plot: Plot, width: int) -> str:
    """The names of round steps where they are, and what they are, at the end."""
    end = plot.x_name
    room = [" "] * width
    for step in x_ticks(plot, frame, max(2, min(6, width // 12))):
        name = plot.x_format(step)
        first = min(max(round(_share(frame, step) * (width - 1)) - len(name) // 2, 0), width - len(name))
        free = first >= 0 and first + len(name) < width - len(end) - 1
        if step == int(step) and free and all(sign == " " for sign in room[max(first - 1, 0) : first + len(name) + 1]):
            room[first : first + len(name)] = name
    if len(end) <= width:
        room[width - len(end) :] = end
    return "".join(room)


def _legend(lines: Sequence[Line], look: Look, is_dotted: bool, margin: int) -> Iterator[Text]:
    marks = MARKS if look.has_unicode else LETTERS
    for number, line in enumerate(lines):
        mark = "⣀⠤⠒" if is_dotted else marks[number % len(marks)]
        color = COLORS[number % len(COLORS)] if look.has_colors else ""
        yield Text.assemble(" " * margin, (mark, color), " ", line.name)
