"""A layout drawn for people: which rank holds which stage, tensor shard and data shard, and what that costs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.telemetry import format as show

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


def draw_layout(data: int, tensor: int, rows: Sequence[ProcessRow]) -> list[str]:
    """A line for every process of the pipeline, a column for every data replica, with the ranks in the cells.

    The ranks of a cell hold the tensor shards 0, 1, 2 … in this order. The middle of what is long is left out.
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
    widths = [max(len(line[column]) for line in table) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


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
