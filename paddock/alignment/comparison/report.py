"""The report of a comparison: a page with the verdict, the curves, the errors, and what the runs have in common."""

from __future__ import annotations

import math
from pathlib import Path

from paddock import __version__
from paddock.alignment.comparison.comparability import UNKNOWN, Fact, word
from paddock.alignment.comparison.runs import RunComparison, percent, shown_error
from paddock.errors import bad_value
from paddock.files import NAMES, atomic_write, disk_errors
from paddock.telemetry.drawing import pages
from paddock.telemetry.drawing.plots import Line, Plot
from paddock.telemetry.drawing.svg import draw

VERDICTS = {True: "aligned", False: "not aligned"}


def loss_plot(found: RunComparison) -> Plot:
    """Both losses; the reference is wide, and lies beneath."""
    a, b = found.losses
    lines = [Line(found.a.name, a), Line(f"{found.b.name} (reference)", b, "second", "wide")]
    return Plot(f"{found.loss_names[0]} by step", lines)


def error_plot(found: RunComparison) -> Plot:
    """The relative error at every step, with the tolerance."""
    curves, window = found.error_curves, 0 if found.errors is None else found.errors.window
    lines = [Line("relative error", curves.by_step, "soft", "thin")]
    if window > 1:
        lines.append(Line(f"smoothed over {window} steps", curves.smoothed))
    return Plot(
        "relative error of the loss by step",
        lines,
        y_format=_short_percent,
        is_logarithmic=True,
        limit=found.tolerance,
        limit_name=f"tolerance {percent(found.tolerance)}",
    )


def _short_percent(error: float) -> str:
    """For an axis, where there is little room."""
    return f"{100 * error:g} %" if error >= 0.9e-4 else f"1e{math.log10(error) + 2:.0f} %"


def report_page(found: RunComparison) -> str:
    """The whole report, as one HTML file."""
    verdict = VERDICTS[found.aligned]
    body = [
        pages.badge(verdict, "good" if found.aligned else "bad"),
        f"<h1>{pages.escape(found.a.name)} beside {pages.escape(found.b.name)}</h1>",
        pages.paragraph(summary(found), "soft"),
        *_reasons(found),
        *_numbers(found),
        *_metrics(found),
        *_comparability(found),
        *_notes(found),
    ]
    return pages.page(f"{verdict}: {found.a.name} beside {found.b.name}", body, f"paddock {__version__}, paddock align")


WRITERS = {".html": report_page, ".svg": lambda found: draw(loss_plot(found), is_alone=True)}
"""What is written, by the end of the file's name."""


def check_report_name(argument: str, path: Path) -> None:
    """Raise ConfigError for a name that does not say what is wanted."""
    if path.suffix.lower() not in WRITERS:
        raise bad_value(argument, path, "a report is .html, a plot of the losses .svg", "end it in .html or .svg")


def write_report(found: RunComparison, path: Path) -> None:
    """The page, or the plot of the losses."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, errors=NAMES) as stream:
        stream.write(WRITERS[path.suffix.lower()](found))


def summary(found: RunComparison) -> str:
    """What was compared."""
    steps = "no step in common" if found.errors is None else f"{found.errors.steps} common steps"
    return f"{found.a.form} beside {found.b.form}, {steps}, tolerance {percent(found.tolerance)}"


def _reasons(found: RunComparison) -> list[str]:
    parts = []
    if found.alarms:
        parts += [pages.heading("Alarms"), pages.bullets(found.alarms, "bad")]
    if found.beyond:
        parts += [pages.heading("Beyond the tolerance"), pages.bullets(found.beyond, "bad")]
    return parts


def _numbers(found: RunComparison) -> list[str]:
    errors = found.errors
    if errors is None:
        return []

    def tile(name: str, value: float, more: str, decides: bool = True) -> tuple[str, str, str, pages.Mood]:
        mood: pages.Mood = "plain" if not decides else "bad" if found.fails(value) else "good"
        return name, percent(value), more, mood

    smoothed = f"over {errors.window} steps" if errors.window > 1 else "too short to smooth"
    parts = [
        pages.heading("Loss"),
        pages.tiles(
            [
                tile("mean", errors.mean, f"of {errors.steps} steps"),
                tile("smoothed", errors.smoothed, smoothed),
                tile("final", errors.final, f"at step {errors.final_step}"),
                tile("largest", errors.max, f"at step {errors.max_step}", decides=False),
            ]
        ),
        pages.figure(draw(loss_plot(found))),
        pages.figure(draw(error_plot(found))),
    ]
    if found.norm is not None:
        norm = f"mean {percent(found.norm.mean)}, largest {percent(found.norm.max)} at step {found.norm.max_step}"
        parts.append(pages.paragraph(f"Gradient norm (shown, and decides nothing): {norm}.", "soft"))
    return parts


def _metrics(found: RunComparison) -> list[str]:
    if not found.metrics:
        return []
    rows: list[list[str | tuple[str, pages.Mood]]] = []
    for metric in found.metrics:
        mood: pages.Mood = "plain"
        if metric.decides:
            mood = "bad" if found.fails(metric.error) else "plain" if metric.is_absolute else "good"
        error = (shown_error(metric), mood)
        rows.append([metric.name, f"{metric.a:.6g}", f"{metric.b:.6g}", error, metric.where])
    parts = [pages.heading("Final metrics"), pages.table(["metric", "run", "reference", "error", "at"], rows)]
    if shown := [metric.name for metric in found.metrics if not metric.decides]:
        parts.append(pages.paragraph(f"{', '.join(shown)}: shown, and decides nothing; its loss does.", "soft"))
    return parts


def _comparability(found: RunComparison) -> list[str]:
    facts = found.facts
    common = [[fact.label, word(fact.a)] for fact in facts.shown if fact.state == "same"]
    lacking = [fact for fact in facts.shown if fact.a == fact.b == UNKNOWN]
    others = [fact for fact in facts.shown if fact.state != "same" and fact not in lacking]
    parts = [pages.heading("What they have in common")]
    if others:
        rows = [[fact.label, word(fact.a), word(fact.b), _state(fact)] for fact in others]
        parts.append(pages.table(["", "run", "reference", ""], rows))
    if common:
        parts.append(pages.table(["", "both"], common))
    said = [f"Neither says its {', '.join(fact.label for fact in lacking)}."] if lacking else []
    if same := facts.count("same"):
        said.append(f"Further facts that are the same: {same}.")
    if unknown := facts.count("unknown"):
        said.append(f"Unknown of one of them or both: {unknown} more.")
    return [*parts, pages.paragraph(" ".join(said), "soft")]


def _state(fact: Fact) -> str | tuple[str, pages.Mood]:
    if fact.prevents:
        return "differs, and decides", "bad"
    return "differs, as it may" if fact.state == "differs" and fact.weight == "free" else fact.state


def _notes(found: RunComparison) -> list[str]:
    return [pages.heading("Notes"), pages.bullets(found.notes)] if found.notes else []
