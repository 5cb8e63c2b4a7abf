"""Standard error as a rich console: whether it may be drawn on, lines, and bars for work that is no training run."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.text import Text

from paddock.phases import LINE_EVERY, current, over, shown_elsewhere
from paddock.telemetry.format import bytes_, duration

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal would obey rather than show, but the ends of lines and tabs."""


def stderr_console() -> Console:
    """A console on standard error; standard output is for results.

    `force_terminal` is what the stream itself says: FORCE_COLOR may colour a log, but must not draw live
    bars into it. In a notebook, lines are lines too, one under the other as those of other processes are: rich would
    make a paragraph of HTML of each.
    """
    is_terminal = sys.stderr.isatty()
    return Console(stderr=True, force_terminal=is_terminal, force_jupyter=False, highlight=False, emoji=False)


def is_interactive(console: Console) -> bool:
    """True on a terminal, unless TERM=dumb asks for plain lines; NO_COLOR takes away the colour alone."""
    return console.is_terminal and not console.is_dumb_terminal


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print as it is: no markup, no highlighting, and never broken to the width of the terminal."""
    console.print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def for_terminal(text: str, form: str = r"\x{:02x}") -> str:
    """A text, whoever wrote it, as standard output should have it: on a terminal, characters that would move the cursor
    or change its colours are shown by their numbers; into a file or a pipe they go as they are."""
    return CONTROL.sub(lambda found: form.format(ord(found[0])), text) if sys.stdout.isatty() else text


def show_text(text: str) -> None:
    """Show a result on standard output the moment it is there."""
    over()
    sys.stdout.write(for_terminal(text))
    sys.stdout.flush()


class OnProgress(Protocol):
    """What a bar is told: how much is done of how much, and words about it."""

    def __call__(self, done: int, total: int, also: str = "", /) -> None: ...


@contextmanager
def progress_bar(title: str, visible: bool = True, clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """A bar on a terminal for counted work, elsewhere now and then a line: yields a function to call with
    (done, total)."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )

    class Words(ProgressColumn):
        """What is counted, or what is being done beside it."""

        def render(self, task: Task) -> Text:
            return Text(current() or task.description)

    console = stderr_console()
    if not visible:
        yield lambda done, total, also="": None
    elif is_interactive(console):
        also_column = TextColumn("{task.fields[also]}", markup=False)
        columns = (Words(), BarColumn(), MofNCompleteColumn(), also_column, TimeRemainingColumn())
        with shown_elsewhere(), Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(title, total=None, also="")
            yield lambda done, total, also="": progress.update(task, completed=done, total=total, also=also)
    else:
        over()
        yield _Lines(title, console, clock).tell


class _Lines:
    """Lines about counted work, off a terminal, and not too many of them."""

    def __init__(self, title: str, console: Console, clock: Callable[[], float]) -> None:
        self._title, self._console, self._clock = title, console, clock
        self._begun = self._told = clock()

    def tell(self, done: int, total: int, also: str = "", /) -> None:
        now = self._clock()
        if now - self._told < LINE_EVERY or not (done or also):
            return
        self._told = now
        left = f"{duration(round((total - done) * (now - self._begun) / done))} left" if done else ""
        print_line(self._console, ", ".join(filter(None, [f"{self._title}: {done} of {total}", also, left])))


@contextmanager
def byte_progress_bar(
    title: str, total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal for files copied or read, elsewhere now and then a line: yields a function to call with the
    number of bytes just done."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = stderr_console()
    if is_interactive(console):
        columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with shown_elsewhere(), Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(title, total=total)
            yield lambda count: progress.advance(task, count)
        return
    over()
    begun = told = clock()
    done = 0

    def tell(count: int) -> None:
        nonlocal done, told
        done += count
        now = clock()
        if now - told >= LINE_EVERY:
            told = now
            speed = done / (now - begun)
            left = duration(round((total - done) / speed))
            print_line(console, f"{title}: {bytes_(done)} of {bytes_(total)}, {bytes_(speed)}/s, {left} left")

    yield tell
