"""The forms that a report can have: a page, a picture, a table of every record, JSON."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from typing import IO, Any

from paddock.reporting.curves import CurveReader, RunCurves
from paddock.reporting.page import report_page
from paddock.reporting.report import Report, report_values
from paddock.telemetry.drawing.png import paint
from paddock.telemetry.drawing.svg import draw_sheet
from paddock.telemetry.logs import LogFile
from paddock.telemetry.records import metrics_of, plain
from paddock.training.run_directory.files import METRICS


def write_svg(report: Report, stream: IO[Any]) -> None:
    stream.write(draw_sheet(report.figures))


def write_png(report: Report, stream: IO[Any]) -> None:
    stream.write(paint(report.figures))


def write_html(report: Report, stream: IO[Any]) -> None:
    stream.write(report_page(report))


def write_json(report: Report, stream: IO[Any]) -> None:
    json.dump(plain(report_values(report)), stream, ensure_ascii=False)
    stream.write("\n")


def write_csv(report: Report, stream: IO[Any]) -> None:
    """Every record, a row a step, however long the runs are."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["run", "step", "tokens", "seconds", *report.metrics])
    for name, run in zip(report.names, report.runs, strict=True):
        for place, values in rows_of(run):
            cells = [values.get(metric, "") for metric in report.metrics]
            if any(cell != "" for cell in cells):
                writer.writerow([name, *place, *cells])


def rows_of(run: RunCurves) -> Iterator[tuple[list[float | str], dict[str, float]]]:
    """What was recorded at each step, and where that is."""
    path = run.path / METRICS if run.path.is_dir() else run.path
    again = RunCurves(run.name, run.path, goals=run.goals)
    reader, values, place = CurveReader(again), dict[str, float](), list[float | str]()
    for record in LogFile(path):
        reader.take(record)
        if record["type"] != "LOG" or not record.get("step") or "label" in record:
            continue
        here = reader.here
        if values and place[0] != here.step:
            yield place, values
            values = {}
        tokens, seconds = run.place(here, "tokens"), here.seconds
        place = [
            here.step,
            round(tokens) if math.isfinite(tokens) else "",
            round(seconds, 3) if math.isfinite(seconds) else "",
        ]
        values |= {name: value for name, value in metrics_of(record).items() if isinstance(value, int | float)}
    if values:
        yield place, values


WRITERS: dict[str, Callable[[Report, IO[Any]], None]] = {
    "html": write_html,
    "svg": write_svg,
    "png": write_png,
    "csv": write_csv,
    "json": write_json,
}
"""By the end of the file's name."""
BINARY = ("png",)
