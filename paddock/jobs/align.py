"""Comparing two runs: both are read, compared, and the report or the plot is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock.alignment.comparison.logged import read_run
from paddock.alignment.comparison.report import loss_plot, report_page
from paddock.alignment.comparison.runs import RunComparison, Settings, compare_runs
from paddock.errors import ConfigError, bad_value
from paddock.files import atomic_write, disk_errors, user_path
from paddock.telemetry.plots import draw

WRITERS = {
    ".html": report_page,
    ".svg": lambda found: draw(loss_plot(found), is_alone=True),
}
"""What is written, by the end of the file's name."""


def align_runs(runs: Sequence[str], settings: Settings, output: Path | None) -> RunComparison:
    """Compare the first run with the second, the reference; `output` is a page (.html) or a plot (.svg)."""
    settings.check()
    if len(runs) != 2:
        raise ConfigError(
            f"paddock align compares two runs, and {len(runs) or 'none'} {'is' if len(runs) == 1 else 'are'} named",
            fix="paddock align RUN REFERENCE",
        )
    if output is not None and output.suffix.lower() not in WRITERS:
        raise bad_value("--output", output, "a report is .html, a plot of the losses .svg", "end it in .html or .svg")
    if user_path(runs[0]).resolve() == user_path(runs[1]).resolve():
        raise ConfigError(f"{runs[0]} and {runs[1]} are the same", why="a run agrees with itself", fix="name another")
    found = compare_runs(read_run(runs[0]), read_run(runs[1]), settings)
    if output is not None:
        with disk_errors(output):
            output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(output) as stream:
            stream.write(WRITERS[output.suffix.lower()](found))
    return found
