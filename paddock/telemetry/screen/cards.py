"""Cards on standard error: what is about to happen, what came out of it and what to try next, and a drawn layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paddock.phases import over
from paddock.telemetry import format as show
from paddock.telemetry.screen.terminal import is_interactive, print_line, stderr_console

Row = tuple[str, str | Callable[[int | None], str]]
"""A name and a value, or what makes the value for so many columns; without a number there is room enough."""


def run_card(title: str, rows: Sequence[Row], *, console: Console | None = None) -> None:
    """Print a panel of names and values on standard error; plain `name: value` lines off a terminal."""
    _card(console or stderr_console(), title, rows, color="cyan")


def end_card(
    title: str,
    rows: Sequence[Row],
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


def _card(console: Console, title: str, rows: Sequence[Row], color: str) -> None:
    over()
    if not is_interactive(console):
        print_line(console, title)
        for name, value in rows:
            print_line(console, f"{name}: {value if isinstance(value, str) else value(None)}")
        return
    room = console.width - FRAME - max(len(name) for name, _ in rows)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name), Text(value if isinstance(value, str) else value(room)))
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


FRAME = 6
"""Columns of a card beside names and values: its borders, a space within each, and two between the two."""
MOST_ROWS = 12
MOST_REPLICAS = 4
ELLIPSIS = "…"


@dataclass(frozen=True)
class ProcessRow:
    """What the processes that share one part of a pipeline hold, each of them."""

    stages: Sequence[int]
    layers: Sequence[Sequence[int]]
    """The first and the last layer of each stage."""
    parameters: int
    memory: int
    traffic: int


def draw_layout(data: int, tensor: int, rows: Sequence[ProcessRow], room: int | None = None) -> list[str]:
    """A line for every process of the pipeline, a column for every data replica, with the ranks in the cells.

    The ranks of a cell hold the tensor shards 0, 1, 2 … in this order. The middle of what is long is left out. Where
    there is too little room, stage and layers are left out if there is no pipeline; else each line is a sentence.
    """
    replicas = _ends(range(data), MOST_REPLICAS)
    header = ["", *(_column(replica) for replica in replicas), "stage", "layers", "parameters", "memory", "sends"]
    table = [header]
    for place in _ends(range(len(rows)), MOST_ROWS):
        if place is None:
            table.append([ELLIPSIS] + [""] * (len(header) - 1))
            continue
        row = rows[place]
        cells = [ELLIPSIS if at is None else _ranks((place * data + at) * tensor, tensor) for at in replicas]
        table.append(
            [
                f"pipeline {place}" if len(rows) > 1 else "ranks",
                *cells,
                ",".join(map(str, row.stages)),
                ",".join(_span(first, last) for first, last in row.layers),
                show.count(row.parameters),
                show.bytes_(row.memory),
                show.bytes_(row.traffic),
            ]
        )
    lines = _aligned(table)
    if room is not None and max(map(len, lines)) > room and len(rows) == 1:
        lines = _aligned([[*line[:-5], *line[-3:]] for line in table])
    if room is not None and max(map(len, lines)) > room:
        lines = [_sentence(line, len(replicas)) for line in table[1:]]
    return lines


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def _sentence(line: Sequence[str], replicas: int) -> str:
    """A row of the table, which may be broken between words."""
    name, ranks = line[0], line[1 : 1 + replicas]
    if name == ELLIPSIS:
        return name
    stage, layers, parameters, memory, sends = line[1 + replicas :]
    named = name if name == "ranks" else f"{name}: ranks"
    return (
        f"{named} {' | '.join(ranks)}: stage {stage}, layers {layers}, {parameters} parameters, {memory}, sends {sends}"
    )


def _ends(numbers: range, most: int) -> list[int | None]:
    """The numbers, or only the first and the last of them with None for those between."""
    if len(numbers) <= most:
        return list(numbers)
    return [*numbers[: most - 2], None, numbers[-1]]


def _column(replica: int | None) -> str:
    return ELLIPSIS if replica is None else f"data {replica}"


def _ranks(first: int, count: int) -> str:
    return " ".join(map(str, range(first, first + count))) if count <= 4 else _span(first, first + count - 1)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
