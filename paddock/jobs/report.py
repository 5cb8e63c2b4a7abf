"""A report of runs, written in the form that its name asks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from paddock.errors import ConfigError, bad_value, did_you_mean
from paddock.files import NAMES, atomic_write, disk_errors
from paddock.reporting.figures import View
from paddock.reporting.report import Report, read_report
from paddock.reporting.writing import BINARY, WRITERS
from paddock.streams import speak_utf8

PAGE = Path("report.html")
RAW = ("csv", "json")
"""Forms that have what was recorded, and are not drawn."""


def form_of(output: Path | None, form: str | None) -> str:
    """The form that is asked for: by its name, or by the end of the file's."""
    if form is not None:
        if form not in WRITERS:
            raise bad_value("--format", form, "a report has no such form", did_you_mean(form, list(WRITERS)))
        return form
    if output is None:
        return "html"
    ending = output.suffix.lower().removeprefix(".")
    if ending not in WRITERS:
        ways = ", ".join(f".{name}" for name in WRITERS)
        raise bad_value("--output", output, "its end does not say which form it is to have", f"end it in one of {ways}")
    return ending


def report_runs(names: Sequence[str], metrics: Sequence[str], view: View, form: str) -> Report:
    """Read the runs of a report."""
    if form in RAW and view != View():
        raise ConfigError(
            f"--x, --smooth and --log would be ignored: a report as {form} has the numbers as they were recorded",
            fix="leave them out, or write .html, .svg or .png",
        )
    if not names:
        raise ConfigError("paddock report needs a run", fix="paddock report RUN… --output report.html")
    return read_report(names, metrics, view)


def save_report(report: Report, form: str, output: Path) -> None:
    """Write a report to a file, which is there only when it is whole."""
    with disk_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output, "wb" if form in BINARY else "w", errors=NAMES) as stream:
        WRITERS[form](report, stream)


def print_report(report: Report, form: str, stream: IO[Any]) -> None:
    """The same, for a stream of text."""
    if form in BINARY:
        raise ConfigError(f"a report as {form} goes to a file", fix=f"set --output report.{form}")
    speak_utf8(stream)
    WRITERS[form](report, stream)
