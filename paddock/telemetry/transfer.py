"""Progress of work that is counted in bytes: copying and checking files. Always on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paddock.telemetry.format import bytes_, duration
from paddock.telemetry.terminal import is_interactive, print_line, stderr_console

LINE_EVERY = 10.0
"""Seconds between two lines off a terminal."""


@contextmanager
def transfer(title: str, total: int, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of bytes just done: a bar on a terminal, now and then a line off it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = stderr_console()
    if is_interactive(console):
        columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(title, total=total)
            yield lambda count: progress.advance(task, count)
        return
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
