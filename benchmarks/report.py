"""What every benchmark ends with: a table of measures with their goals, printed, and kept in a file of the machine."""

from __future__ import annotations

import csv
import os
import platform
import sys
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

Row = tuple[str, float, str]
"""A measure, its value, and the goal if there is one."""


def keep(script: str, rows: Sequence[Row]) -> None:
    """Print the table, and write it under the names of the benchmark and the machine."""
    show(rows)
    _write(_path(script), [_line(row) for row in rows])


def keep_part(script: str, rows: Sequence[Row]) -> None:
    """The same with a part of the table: it takes the place of what was measured before of the same."""
    show(rows)
    path = _path(script)
    lines: dict[str, dict[str, str]] = {}
    if path.exists():
        with open(path, newline="") as stream:
            lines = {line["measure"]: line for line in csv.DictReader(stream)}
    _write(path, list((lines | {row[0]: _line(row) for row in rows}).values()))


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    width = max(len(measure) for measure, _, _ in rows)
    for measure, value, goal in rows:
        print(f"{measure:<{width}} {value:10.3f}  {goal}")


def _path(script: str) -> Path:
    name = Path(script).stem.replace("_", "-")
    return Path(__file__).parent / "results" / f"{name}-{platform.machine()}-{os.cpu_count()}cores.csv"


def _line(row: Row) -> dict[str, str]:
    measure, value, goal = row
    known = {"date": date.today().isoformat(), "torch": version("torch").partition("+")[0]}
    return known | {"measure": measure, "value": f"{value:.4g}", "goal": goal}


def _write(path: Path, lines: Sequence[dict[str, str]]) -> None:
    with open(path, "w", newline="") as stream:
        writer = csv.DictWriter(stream, ["date", "torch", "measure", "value", "goal"])
        writer.writeheader()
        writer.writerows(lines)
    print(f"written to {path.name}", file=sys.stderr)
