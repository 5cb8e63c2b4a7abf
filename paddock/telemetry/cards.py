"""The cards at the two ends of a run: what is about to happen; what came out of it and what to try next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paddock.telemetry.terminal import is_interactive, print_line, stderr_console


def run_card(title: str, rows: Sequence[tuple[str, str]], *, console: Console | None = None) -> None:
    """Print a panel of names and values on standard error; plain `name: value` lines off a terminal."""
    _card(console or stderr_console(), title, rows, color="cyan")


def end_card(
    title: str,
    rows: Sequence[tuple[str, str]],
    next_commands: Sequence[str] = (),
    *,
    console: Console | None = None,
) -> None:
    """The same, with the commands to try next below it, unbroken, so that they can be copied."""
    console = console or stderr_console()
    _card(console, title, rows, color="green")
    if not is_interactive(console):
        for command in next_commands:
            print_line(console, f"next: {command}")
        return
    if next_commands:
        print_line(console, "  next", style="dim")
    for command in next_commands:
        print_line(console, f"  $ {command}", style="bold")


def _card(console: Console, title: str, rows: Sequence[tuple[str, str]], color: str) -> None:
    if not is_interactive(console):
        print_line(console, title)
        for name, value in rows:
            print_line(console, f"{name}: {value}")
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), Text(value))
    heading = Text(title, style=f"bold {color}")
    console.print(
        Panel(
            grid,
            title=heading,
            title_align="left",
            box=ROUNDED,
            border_style=color,
            padding=(0, 1),
            expand=False,
        )
    )
