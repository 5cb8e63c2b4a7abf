"""A bar for work that is counted but is no training run: evaluation, conversion. Silent off a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paddock.telemetry.terminal import is_interactive, stderr_console


@contextmanager
def counted(title: str, visible: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yields a function to call with (done, total); the bar disappears when the work is over."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr_console()
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (visible and is_interactive(console))
    ) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
