"""The two live lines of a run on a terminal: how far it is, and how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from paddock.telemetry import format
from paddock.telemetry.pace import Pace
from paddock.telemetry.trend import Trend

_SHORT = {"grad_norm": "grad", "step_time": "step", "data_time": "data", "memory": "mem"}
_WIDEST = 140  # a bar right across a wide screen says no more than a shorter one
_TREND_FROM = 100  # columns from which there is room for the course of the loss


class Dashboard:
    """What is shown, and how. Rich's live display renders it a few times a second."""

    def __init__(
        self, title: str, total_steps: int, pace: Pace, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.title = title
        self.total_steps = total_steps
        self.step = 0
        self.cells: Sequence[tuple[str, str]] = ()
        self.step_time: float | None = None
        self.loss = Trend()
        self._pace = pace
        self._clock = clock
        self._start = clock()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        yield self._progress(width)
        yield self._metrics(width, with_trend=width >= _TREND_FROM and not options.ascii_only)

    def _progress(self, width: int) -> Table:
        done = self.step >= self.total_steps
        grid = Table.grid(padding=(0, 2, 0, 0), expand=False, pad_edge=False)
        grid.width = width
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1, min_width=8)
        for min_width in (0, 4, 18):  # wide enough that the bar keeps its length as the numbers grow
            grid.add_column(no_wrap=True, justify="right", min_width=min_width)
        bar = ProgressBar(total=max(self.total_steps, 1), completed=self.step)
        position = Text.assemble(
            (f"{self.step:>{len(str(self.total_steps))}}", "bold"), (f"/{self.total_steps}", "dim")
        )
        share = f"{min(self.step / max(self.total_steps, 1), 1):.0%}"
        grid.add_row(
            Text(_shortened(self.title), style="bold"),
            bar,
            position,
            Text("done" if done else share, style="green" if done else ""),
            self._times(done),
        )
        return grid

    def _times(self, done: bool) -> Text:
        elapsed = format.duration(int(self._clock() - self._start))
        left = None if done else self._pace.seconds_left(self.total_steps, self.step_time)
        if done:
            return Text.assemble(("in ", "dim"), elapsed)
        if left is None:
            return Text(elapsed, style="dim")
        return Text.assemble((f"{elapsed}  eta ", "dim"), (format.duration(round(left)), "cyan"))

    def _metrics(self, width: int, with_trend: bool) -> Text:
        if not self.cells:
            return Text("the first steps are under way …" if self.step == 0 else "", style="dim", no_wrap=True)
        line = Text(no_wrap=True, overflow="crop", end="")
        for label, value in self.cells:
            cell = Text.assemble((f"{_SHORT.get(label, label)} ", "dim"), (value, _style(label, value)))
            if label == "loss" and with_trend and str(self.loss):
                cell.append(f" {self.loss}", style="cyan")
            if line.cell_len and line.cell_len + 2 + cell.cell_len > width:
                break  # in order of interest: what does not fit any more is in the file
            if line.cell_len:
                line.append("  ")
            line.append_text(cell)
        return line


def _shortened(title: str, limit: int = 24) -> str:
    return title if len(title) <= limit else title[: limit - 1] + "…"


def _style(label: str, value: str) -> str:
    if value in ("nan", "inf", "-inf"):
        return "bold red"
    return "bold cyan" if label == "loss" else "bold"
