"""Pages for people: what a command prints is broken between words where a terminal is too narrow for it."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import TextWrapper

from paddock.streams import UNBROKEN

COLOURED = re.compile(r"\x1b\[[0-9;]*m")
CELLS = re.compile(r"\s*(?:\S+(?: \S+)?\s{2,}){0,2}")
"""What stands before the value in a line of a page: one name or two, in columns."""


def page_of(text: str, columns: int) -> str:
    """A page for people in so many columns: what is too long is broken between words, and goes on beneath its value,
    or a little behind its beginning where that would leave too little room."""
    lines = []
    for line in text.splitlines():
        cells, indent = CELLS.match(line), len(line) - len(line.lstrip())
        behind = cells.end() if cells else 0
        behind = behind if indent < behind <= columns // 2 else indent + 2
        breaks = TextWrapper(
            columns, subsequent_indent=" " * behind, break_long_words=False, break_on_hyphens=False, expand_tabs=False
        )
        whole = UNBROKEN.sub(lambda found: found[0].replace(" ", "\0"), line)
        lines += [line] if len(line) <= columns else breaks.wrap(whole)
    return "\n".join(lines).replace("\0", " ") + ("\n" if text.endswith("\n") else "")


def show_page(text: str, end: str = "\n") -> None:
    """Print a page for people; on a terminal, long lines are broken between words."""
    room = room_in_terminal()
    print(text if room is None else page_of(text, room), end=end)


class _Held(io.StringIO):
    """What is printed, kept by somebody who thinks that it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def broken_pages() -> Iterator[None]:
    """On a terminal, lines that others print and that are too long for it are broken between words."""
    room, terminal = room_in_terminal(), sys.stdout
    if room is None:
        yield
        return
    sys.stdout = held = _Held()
    try:
        yield
    finally:
        sys.stdout = terminal
        for line in held.getvalue().splitlines():
            print(line if len(COLOURED.sub("", line)) <= room else page_of(line, room))


def room_in_terminal() -> int | None:
    """Columns of the terminal that results go to; None where they go elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
