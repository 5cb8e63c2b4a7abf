"""What a run has recorded, for programs and notebooks: a table to look at, and plots of its columns."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paddock.arguments import check_type
from paddock.errors import ConfigError, bad_value, did_you_mean
from paddock.files import NAMES, atomic_write, disk_errors
from paddock.reporting.curves import AXES, Axis, NoCurves, value_format
from paddock.reporting.figures import View
from paddock.reporting.report import Report, read_report
from paddock.reporting.text import table
from paddock.reporting.writing import BINARY, WRITERS, rows_of
from paddock.telemetry.drawing.characters import Look, draw_characters
from paddock.telemetry.drawing.svg import draw_sheet

LATEST = 10
"""Rows that are shown; all are there."""
SHOWN = ("train.loss", "val.", "train.lr", "train.grad_norm")
"""How the names of columns begin that are shown."""


class History:
    """The metrics of a run by its steps: a row for each step at which something was recorded.

    >>> trainer.history["train.loss"]
    {1: 8.0056, 25: 6.2688, 50: 6.2247}
    >>> pandas.DataFrame(trainer.history.rows)
    >>> trainer.history.plot("train.loss", "val.loss").save("losses.svg")
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    @cached_property
    def rows(self) -> list[dict[str, float]]:
        """Every step with what was recorded at it; steps that were done again count once, as they were done last.

        >>> trainer.history.rows[-1]["train.loss"]
        """
        if self._whole is None:
            return []
        return [{"step": int(place[0]), **values} for place, values in rows_of(self._whole.runs[0])]

    @cached_property
    def columns(self) -> list[str]:
        """The metrics that some row has, those of most interest first.

        >>> [name for name in trainer.history.columns if name.startswith("val.")]
        """
        return [] if self._whole is None else list(self._whole.metrics)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, float]]:
        return iter(self.rows)

    def __getitem__(self, metric: str) -> dict[int, float]:
        """A column: the values of a metric by their steps."""
        self._check(metric)
        return {int(row["step"]): row[metric] for row in self.rows if metric in row}

    def plot(self, *metrics: str, x: Axis = "step", smooth: float | None = None, log: bool = False) -> Picture:
        """Pictures of metrics, under each other; of the training loss, if none is named.

        >>> trainer.history.plot("train.loss", smooth=20)
        >>> trainer.history.plot("val.loss", x="tokens", log=True).save("loss.png")
        """
        for metric in metrics:
            self._check(metric)
        if x not in AXES:
            raise bad_value("x", x, "there is no such axis", did_you_mean(str(x), list(AXES)))
        check_type("smooth", smooth, float, int, fix="so many steps, such as smooth=20")
        check_type("log", log, bool, fix="True makes the axis of values logarithmic")
        report = read_report([str(self.run_dir)], metrics, View(x, smooth, log))
        return Picture(report if metrics else report.of_loss())

    def __repr__(self) -> str:
        head, *lines = table(self._cells(), right=range(len(self._shown) + 1))
        cut = ["…"] if len(self) > LATEST else []
        steps = "step" if len(self) == 1 else "steps"
        return "\n".join([f"{self.run_dir}: {len(self)} {steps} recorded", head, *cut, *lines])

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        caption = html.escape(f"{self.run_dir}: the last {len(rows)} of {len(self)} steps recorded")
        return f"<table><caption>{caption}</caption><tr>{cells}</tr>{lines}</table>"

    @property
    def _shown(self) -> list[str]:
        return [name for name in self.columns if name.startswith(SHOWN)]

    def _cells(self) -> list[list[str]]:
        """The table as it is shown: its head, and the last rows."""
        units = {} if self._whole is None else self._whole.runs[0].units
        rows = [["step", *self._shown]]
        for row in self.rows[-LATEST:]:
            values = [value_format(name, units)(row[name]) if name in row else "" for name in self._shown]
            rows.append([f"{int(row['step']):,}", *values])
        return rows

    @cached_property
    def _whole(self) -> Report | None:
        """None, as long as nothing has been recorded."""
        try:
            return read_report([str(self.run_dir)], (), View())
        except NoCurves:
            return None

    def _check(self, metric: str) -> None:
        if metric not in self.columns:
            fix = did_you_mean(str(metric), self.columns) if self.columns else "wait for its first step"
            raise ConfigError(f"{self.run_dir} has recorded no {metric}", fix=fix)


@dataclass(frozen=True)
class Picture:
    """Curves, drawn in whatever shows them: a notebook, a terminal, a file.

    >>> print(trainer.history.plot("train.loss"))
    """

    report: Report

    def save(self, path: str | Path) -> Path:
        """Write it as .svg, or as .png, which needs Pillow; returns the path.

        >>> trainer.history.plot().save("loss.svg")
        """
        check_type("path", path, str, Path, fix="end it in .svg or .png")
        place = Path(path)
        form = place.suffix.lower().removeprefix(".")
        if form not in ("svg", "png"):
            raise bad_value("path", path, "its end does not say which form it is to have", "end it in .svg or .png")
        with disk_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(place, "wb" if form in BINARY else "w", errors=NAMES) as stream:
            WRITERS[form](self.report, stream)
        return place

    def _repr_svg_(self) -> str:
        return draw_sheet(self.report.figures)

    def __repr__(self) -> str:
        drawn = [draw_characters(figure, Look()) for figure in self.report.figures]
        return "\n\n".join("\n".join(line.plain.rstrip() for line in lines) for lines in drawn)
