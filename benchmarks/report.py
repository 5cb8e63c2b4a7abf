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


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    width = max(len(measure) for measure, _, _ in rows)
    for measure, value, goal in rows:
        print(f"{measure:<{width}} {value:10.3f}  {goal}")


def keep(script: str, rows: Sequence[Row]) -> None:
    """Print the table, and write it under the names of the benchmark and the machine."""
    show(rows)
    name = Path(script).stem.replace("_", "-")
    path = Path(__file__).parent / "results" / f"{name}-{platform.machine()}-{os.cpu_count()}cores.csv"
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["date", "torch", "measure", "value", "goal"])
        known = date.today().isoformat(), version("torch").partition("+")[0]
        writer.writerows([*known, measure, f"{value:.4g}", goal] for measure, value, goal in rows)
    print(f"written to {path.name}", file=sys.stderr)
