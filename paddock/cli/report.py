"""`paddock report RUN…`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from paddock.cli.arguments import parse


@dataclass(frozen=True)
class ReportOptions:
    """A report of one run or of several: their curves over each other, what differs of their recipes, their numbers.

        paddock report runs/a
        paddock report runs/a runs/b runs/c --output report.html
        paddock report runs/a runs/b --metric train.loss --output loss.svg
        paddock report runs/a --format csv > runs.csv

    The page is one file that needs nothing else: it works offline, on a phone, in the dark and on paper. In it curves
    are smoothed or not, over steps, tokens or time. Restarts are marked; steps that were done again count once. A
    picture (.svg, .png) has the curves, .csv every record, .json all of it. Logs of other programs can be named."""

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN…")] = ()
    """Run directories, or logs."""
    output: Path | None = None
    """The file, whose end says what it is: .html, .svg, .png, .csv, .json. None: report.html, or standard output where
    --format is given."""
    format: Literal["html", "svg", "png", "csv", "json"] | None = None
    """What it is to be, whatever the file is called."""
    metric: tuple[str, ...] = ()
    """Only these; all, if none is named."""
    x: Literal["step", "tokens", "time"] = "step"
    """The axis: of pictures, and that a page begins with."""
    smooth: float | None = None
    """Smooth over about so many steps; a page has smoothed curves anyway, over a twenty-fifth of the longest run."""
    log: bool = False
    """A logarithmic axis of values."""
    json: bool = False
    """The same as --format json."""


def main(arguments: list[str]) -> None:
    options = parse(ReportOptions, "report", arguments)
    from paddock.jobs.report import PAGE, form_of, print_report, report_runs, save_report
    from paddock.reporting.figures import View

    form = form_of(options.output, "json" if options.json else options.format)
    report = report_runs(options.runs, options.metric, View(options.x, options.smooth, options.log), form)
    output = options.output or (None if options.json or options.format else PAGE)
    if output is None:
        print_report(report, form, sys.stdout)
        return
    save_report(report, form, output)
    for run in report.runs:
        for remark in run.remarks:
            print(f"note: {remark}", file=sys.stderr)
    print(f"written: {output}", file=sys.stderr)
