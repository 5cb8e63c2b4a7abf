"""Standard error as a rich console, and whether it may be drawn on."""

from __future__ import annotations

import sys

from rich.console import Console


def stderr_console() -> Console:
    """A console on standard error; standard output is for results.

    `force_terminal` is what the stream itself says: FORCE_COLOR may colour a log, but must not draw live
    bars into it.
    """
    return Console(stderr=True, force_terminal=sys.stderr.isatty(), highlight=False, emoji=False)


def is_interactive(console: Console) -> bool:
    """True on a terminal, unless NO_COLOR or TERM=dumb ask for plain lines."""
    return console.is_terminal and not console.is_dumb_terminal and not console.no_color


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """Print as it is: no markup, no highlighting, and never broken to the width of the terminal."""
    console.print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)
