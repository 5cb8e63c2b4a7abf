"""The pictures of docs/screens.md: commands run in a terminal of 60 and of 120 columns, and drawn as they appeared.

    pip install pyte
    python docs/making/screens.py [NAME…]

runs them one after the other, in an empty folder, with the `paddock` of this Python, and writes
docs/pictures/screens/NAME-COLUMNS.svg. It takes a few minutes; the NAMEs that are given are run alone, which does for
those that need nothing of others.
"""

from __future__ import annotations

import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from paddock.testing.commands import AtTerminal

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures" / "screens"
WIDTHS = (120, 60)
END = "end"


@dataclass(frozen=True)
class Screen:
    """A command, and when its terminal is drawn."""

    command: str
    name: str
    """Of the pictures."""
    moments: Mapping[str, str] = field(default_factory=dict)
    """Others than its end: what each is called, and an expression that is first found on the screen then."""

    def pictures(self) -> list[str]:
        return [f"{self.name}-{moment}" for moment in self.moments] + [self.name]


TRAIN = "paddock train gpt2/tiny --steps 100 --run-dir runs/tour"
TWO = "paddock train gpt2/tiny --steps 40 --nproc-per-node 2 --run-dir runs/two"
SCREENS = (
    Screen(TRAIN, "train", {"start": "preparing data", "middle": r"\b[5-9]\d/100"}),
    Screen(TWO, "two", {"middle": r"\b[2-3]\d/40"}),
    Screen("paddock train gpt2/tiny --parallel.tensor 4", "error"),
    Screen("paddock train gpt2/tiny --stpes 20", "misspelt"),
    Screen("paddock evaluate runs/tour", "evaluate"),
    Screen('paddock generate runs/tour --prompt "The class" --max-new-tokens 40 --temperature 0.4', "generate"),
    Screen("paddock runs list", "runs-list"),
    Screen("paddock runs plot runs/tour", "runs-plot"),
    Screen("paddock check parity gpt2/tiny --layouts dp2 tp2 --steps 5", "parity"),
    Screen("paddock train gpt2/13b --dry-run --world 32", "dry-run"),
)
"""In this order, each in the folder that those before it have left."""


class Piece(NamedTuple):
    """Characters beside each other that look the same."""

    column: int
    text: str
    color: str
    bold: bool


Lines = Sequence[Sequence[Piece]]


# The terminal

ROWS = 40
LONGEST = 400
"""Lines that are remembered: nothing scrolls away."""
BACKGROUND, TEXT = "#16191f", "#d7dae0"
COLORS = {
    **{"red": "#f2777a", "green": "#8fc98b", "brown": "#e5c07b", "blue": "#7aa6f0", "magenta": "#c99be0"},
    **{"cyan": "#62c8cf", "white": TEXT, "black": "#5c6370", "brightblack": "#8b93a1", "default": TEXT},
}
FAINT, ITS_END, COLOR_NUMBERS = 2, 22, (38, 48)


def watch(screen: Screen, columns: int, folder: Path) -> Iterator[tuple[str, Lines]]:
    """Run a command in a terminal; gives the pictures' names and what stood there."""
    import pyte

    class Emulator(pyte.Screen):
        def select_graphic_rendition(self, *attributes: int, **kwargs: Any) -> None:
            """What is faint is grey: pyte knows it not."""
            if not any(number in attributes for number in COLOR_NUMBERS):
                faint = {FAINT: (90,), ITS_END: (22, 39)}
                attributes = tuple(one for number in attributes for one in faint.get(number, (number,)))
            super().select_graphic_rendition(*attributes, **kwargs)

    terminal = Emulator(columns, LONGEST)
    own = (str(folder), str(Path.home()), socket.gethostname())
    stream = pyte.ByteStream(terminal)
    wanted = dict(screen.moments)
    words = shlex.split(screen.command)[1:]
    variables = {"XDG_CACHE_HOME": str(folder / ".cache"), "OMP_NUM_THREADS": "1"}
    for output in AtTerminal(words, columns, ROWS, folder, **variables):
        stream.feed(output)
        if any(name in output.decode(errors="replace") for name in own):
            raise SystemExit(f"{screen.command} says where it ran: {output!r}")
        for moment, expression in list(wanted.items()):
            if re.search(expression, "\n".join(terminal.display)):
                yield f"{screen.name}-{moment}", _lines(terminal)
                del wanted[moment]
    if wanted:
        raise SystemExit(f"{screen.command}: there never was {', '.join(wanted.values())}")
    yield screen.name, _lines(terminal)


def _lines(terminal: Any) -> Lines:
    """The lines of a terminal up to its last one that is not empty."""
    used = [number for number, line in enumerate(terminal.display) if line.strip()]
    return [list(_pieces(terminal, number)) for number in range(used[-1] + 1 if used else 0)]


def _pieces(terminal: Any, number: int) -> Iterator[Piece]:
    row = terminal.buffer[number]
    cells = [(column, row[column]) for column in range(terminal.columns)]
    for (color, bold), group in groupby(cells, key=lambda cell: (_color(cell[1]), cell[1].bold)):
        members = list(group)
        text = "".join(cell.data for _, cell in members)
        if text.strip():
            before = len(text) - len(text.lstrip())
            yield Piece(members[0][0] + before, text.strip(), color, bold)


def _color(cell: Any) -> str:
    name: str = cell.fg
    return COLORS.get(name) or COLORS.get(name.removeprefix("bright")) or f"#{name}"


# The picture

WIDE, HIGH, MARGIN, FONT = 8.4, 18, 14, 14


def picture(command: str, lines: Lines, columns: int) -> str:
    """A terminal as SVG. Every piece says how wide it is, so that columns stand beneath each other in any font."""
    prompt: Lines = [[Piece(0, "$", COLORS["brightblack"], False)]]
    typed = _wrapped(f"$ {command}", columns)
    first = [[Piece(2 if number == 0 else 0, line[2:] if number == 0 else line, TEXT, True)] for number, line in typed]
    rows = [[*prompt[0], *first[0]], *first[1:], *lines]
    width, height = columns * WIDE + 2 * MARGIN, len(rows) * HIGH + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', '
        f'monospace" font-size="{FONT}" role="img">',
        f"<title>{escape(command)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for number, pieces in enumerate(rows):
        for piece in pieces:
            x, y = MARGIN + piece.column * WIDE, MARGIN + number * HIGH + FONT
            bold = ' font-weight="bold"' if piece.bold else ""
            out.append(
                f'<text x="{x:.1f}" y="{y}" textLength="{len(piece.text) * WIDE:.1f}" fill="{piece.color}"{bold} '
                f'xml:space="preserve">{escape(piece.text)}</text>'
            )
    return "\n".join([*out, "</svg>\n"])


def _wrapped(text: str, columns: int) -> list[tuple[int, str]]:
    """As a terminal breaks what is typed: wherever its last column is."""
    return list(enumerate(text[first : first + columns] for first in range(0, len(text), columns)))


def main(names: Sequence[str] = ()) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for columns in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            for screen in [screen for screen in SCREENS if not names or screen.name in names]:
                for name, lines in watch(screen, columns, Path(folder)):
                    file = PICTURES / f"{name}-{columns}.svg"
                    file.write_text(picture(screen.command, lines, columns), encoding="utf-8")
                    print(file.relative_to(ROOT), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
