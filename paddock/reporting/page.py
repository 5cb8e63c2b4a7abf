"""The page of a report: one file, for people to open anywhere. Its curves are drawn when it is made, over every axis
and smoothed or not; a small script shows the ones that are asked for, and the values beneath the pointer."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from paddock import __version__
from paddock.reporting.curves import Axis, common_axes
from paddock.reporting.figures import View, figure_of, smoothing_of
from paddock.reporting.listing import cells_of
from paddock.reporting.report import Report
from paddock.telemetry import format as show
from paddock.telemetry.drawing import pages
from paddock.telemetry.drawing.plots import Frame, colored
from paddock.telemetry.drawing.svg import draw
from paddock.telemetry.logfile import general


def report_page(report: Report) -> str:
    """The whole page."""
    alone = len(report.runs) == 1
    title = report.names[0] if alone else f"{len(report.runs)} runs: {', '.join(report.names)}"
    body = [
        f"<h1>{escape(title)}</h1>",
        *_tiles(report),
        *_runs(report),
        *_controls(report),
        *_curves(report),
        *_restarts(report),
        *_facts(report),
        *_metrics(report),
        *_notes(report),
    ]
    made = time.strftime("%Y-%m-%d %H:%M")
    footer = f"paddock {__version__}, paddock report, {made}"
    style, script = ((files("paddock.reporting") / f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    return pages.page(title, body, footer, style=style, script=script)


def _tiles(report: Report) -> list[str]:
    """Of one run, what people look at first."""
    [run, *others], entry = report.runs, report.entries[0]
    if others or entry is None:
        return []
    tiles: list[tuple[str, str, str, pages.Mood]] = []
    of = f"of {entry.total_steps:,}" if entry.total_steps else ""
    tiles.append(("steps", f"{entry.step:,}", f"{of} · {entry.state}".strip(" ·"), "plain"))
    if entry.loss is not None:
        tiles.append(("loss", general(entry.loss), "the last one recorded", "plain"))
    if entry.best is not None:
        tiles.append((f"best val.{entry.measure}", general(entry.best), f"at step {entry.best_step:,}", "plain"))
    if entry.speed is not None:
        tiles.append(("speed", show.rate(entry.speed), entry.speed_unit, "plain"))
    seconds = max((one.last.seconds for one in run.series.values() if one.last), default=0.0)
    if seconds > 0:
        tiles.append(
            ("time", show.duration(seconds), f"{entry.attempts} attempts" if entry.attempts > 1 else "", "plain")
        )
    return [pages.tiles(tiles)]


def _runs(report: Report) -> list[str]:
    """A row for every run."""
    head = ["run", "recipe", "state", "steps", "loss", "best", "speed", "size"]
    rows = []
    for number, (name, entry) in enumerate(zip(report.names, report.entries, strict=True)):
        cells = [] if entry is None else cells_of(entry)
        rows.append(
            f'<tr><td class="swatched">{swatch(number)}{escape(name)}</td>' + "".join(map(pages.cell, cells)) + "</tr>"
        )
    if len(report.runs) == 1:
        return []
    top = "".join(f"<th>{name}</th>" for name in head)
    return [f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>']


def swatch(number: int) -> str:
    """A piece of a run's colour."""
    tone, dashed = colored(number)
    ground = (
        f"repeating-linear-gradient(90deg, var(--{tone}) 0 4px, transparent 4px 7px)" if dashed else f"var(--{tone})"
    )
    return f'<span class="swatch" style="background: {ground}"></span>'


def _controls(report: Report) -> list[str]:
    """What the script listens to. Without it, and on paper, they are the legend."""
    runs = [
        f'<label><input type="checkbox" data-run="{number}" checked hidden>{swatch(number)}{escape(name)}</label>'
        for number, name in enumerate(report.names)
    ]
    axes = list(common_axes(report.runs))
    over = [
        f'<label><input type="radio" name="axis" value="{axis}"{" checked" * (axis == report.view.axis)}>{axis}</label>'
        for axis in axes
    ]
    parts = [f'<div class="choice runs">{"".join(runs)}</div>'] if len(runs) > 1 else []
    parts.append('<div class="choice" hidden><label><input type="checkbox" id="smooth">smoothed</label></div>')
    if len(over) > 1:
        parts.append(f'<div class="choice" hidden><span>over</span>{"".join(over)}</div>')
    return [f'<div class="controls">{"".join(parts)}</div>']


def _curves(report: Report) -> list[str]:
    """Every metric; those that few look at are folded."""
    axes = list(common_axes(report.runs))
    window = report.view.smoothing or smoothing_of(report.runs)
    principal = report.principal
    parts = ['<div class="curves">']
    parts += [_curve(report, metric, axes, window) for metric in principal]
    folded = [_curve(report, metric, axes, window) for metric in report.metrics if metric not in principal]
    if folded:
        parts += [
            f"<details><summary>{len(folded)} more curve{'s' * (len(folded) > 1)}</summary>",
            *folded,
            "</details>",
        ]
    return [*parts, "</div>"]


def _curve(report: Report, metric: str, axes: Sequence[Axis], window: float) -> str:
    """A metric over every axis, one of which is shown."""
    parts = [f"<section><h3>{escape(metric)}</h3>"]
    for axis in axes:
        view = View(axis, None, report.view.is_logarithmic)
        plot = figure_of(report.runs, metric, view, both=window)
        frame = Frame.around(plot)
        ranges = {
            "x": frame.x_range,
            "y": frame.y_range,
            "log": frame.is_logarithmic,
            "top": frame.top,
            "ground": frame.ground,
        }
        shown = " is-shown" if axis == report.view.axis else ""
        data = escape(json.dumps(ranges))
        parts.append(
            f'<div class="variant{shown}" data-axis="{axis}" data-frame="{data}">{pages.figure(draw(plot))}</div>'
        )
    return "".join([*parts, "</section>"])


def _restarts(report: Report) -> list[str]:
    rows = [
        [
            name,
            str(restart.number),
            f"{restart.step:,}",
            show.duration(restart.seconds) if restart.seconds == restart.seconds else "–",
        ]
        for name, run in zip(report.names, report.runs, strict=True)
        for restart in run.restarts
    ]
    if not rows:
        return []
    about = "Steps that were done again are shown once, as the last attempt found them. A dotted line marks each place."
    table = pages.table(["run", "attempt", "goes on after step", "time"], rows)
    return [pages.heading("Restarts"), table, pages.paragraph(about, "soft")]


def _facts(report: Report) -> list[str]:
    """What differs, or of one run what it is."""
    found = report.beside
    if not found.facts:
        return []
    if len(report.runs) == 1:
        shown = [[row.label, *row.words] for row in found.common]
        rest = [[row.label, *row.words] for row in found.facts if row not in found.common]
        return [
            pages.heading("What it is"),
            pages.table(["", report.names[0]], shown),
            f"<details><summary>all of its recipe and versions ({len(rest)})</summary>",
            pages.table(["", report.names[0]], rest),
            "</details>",
        ]
    rows = [[row.label, *row.words] for row in found.differences]
    same = sum(not row.differs for row in found.facts)
    parts = [pages.heading("What differs")]
    parts += (
        [pages.table(["", *report.names], rows)]
        if rows
        else [pages.paragraph("Nothing that the runs say of themselves.")]
    )
    common = ", ".join(f"{row.label} {row.words[0]}" for row in found.common)
    said = f"The same: {common}; {same} facts in all." if common else f"Facts that are the same: {same}."
    return [*parts, pages.paragraph(said, "soft")]


def _metrics(report: Report) -> list[str]:
    """Last and best values, side by side."""
    rows: list[list[str | tuple[str, pages.Mood]]] = []
    for row in report.beside.metrics:
        if row.name not in report.metrics and row.kind != "summary":
            continue
        cells: list[str | tuple[str, pages.Mood]] = []
        for place, text in enumerate(row.shown):
            step = row.steps[place]
            text = f"{text} (step {step:,})" if row.kind == "best" and step is not None else text
            cells.append((text, "good") if place == row.leader else text)
        rows.append([row.name, row.kind, *cells])
    return [pages.heading("Numbers"), pages.table(["metric", "", *report.names], rows)]


def _notes(report: Report) -> list[str]:
    notes = [note for run in report.runs for note in run.remarks]
    return [pages.heading("Notes"), pages.bullets(notes)] if notes else []
