"""What a person sees of a run: two live lines on a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from rich.console import Console, ConsoleOptions, RenderResult
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from paddock.phases import LINE_EVERY, current, over, shown_elsewhere
from paddock.telemetry import format
from paddock.telemetry.logfile import LineFormatter
from paddock.telemetry.screen.long_steps import LongSteps
from paddock.telemetry.screen.terminal import is_interactive, print_line, stderr_console
from paddock.telemetry.stream import NOTHING, Step, Value

_SHORT = {"grad_norm": "grad", "step_time": "step", "data_time": "data", "memory": "mem"}
_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDEST = 140  # a bar right across a wide screen says no more than a shorter one
_SPARKLINE_FROM = 100  # columns from which there is room for the course of the loss


class Dashboard:
    """The two live lines of a run: how far it is, and how it goes. Rich renders it a few times a second."""

    def __init__(
        self, title: str, total_steps: int, lines: LineFormatter, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.title = title
        self.total_steps = total_steps
        self.step = 0
        self.latest: Mapping[str, Value] = {}
        """The newest value of each metric; replaced as a whole, since it is read by the thread that draws."""
        self.ended = False
        """Whether nothing more is to come: after its last step a run still evaluates and saves."""
        self.loss = Sparkline()
        self._lines = lines
        self._clock = clock
        self._start = clock()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        yield self._progress(width)
        yield self._metrics(width, with_sparkline=width >= _SPARKLINE_FROM and not options.ascii_only)

    def _progress(self, width: int) -> Table:
        done = self.ended and self.step >= self.total_steps
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
        if done:
            return Text.assemble(("in ", "dim"), elapsed)
        if words := current():
            return Text(words, style="cyan")
        step_time = self.latest.get("train.step_time")
        left = self._lines.eta.seconds_left(self.total_steps, step_time if isinstance(step_time, float) else None)
        if left is None:
            return Text(elapsed, style="dim")
        return Text.assemble((f"{elapsed}  eta ", "dim"), (format.duration(round(left)), "cyan"))

    def _metrics(self, width: int, with_sparkline: bool) -> Text:
        cells = self._lines.cells(self.latest)
        if not cells:
            return Text("the first steps are under way …", style="dim", no_wrap=True)
        line = Text(no_wrap=True, overflow="crop", end="")
        for label, value in cells:
            cell = Text.assemble((f"{_SHORT.get(label, label)} ", "dim"), (value, _style(label, value)))
            if label == "loss" and with_sparkline and str(self.loss):
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


class Sparkline:
    """The course of a number over a whole run, in a few characters: `█▆▄▃▂▂▁▁`.

    It keeps at most `points` averages over equal spans, so that its cost does not grow with the run.
    """

    def __init__(self, points: int = 16) -> None:
        assert points % 2 == 0
        self._limit = points
        self._span = 1
        self._means: list[float] = []
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        if not math.isfinite(value):
            return
        self._pending.append(value)
        if len(self._pending) < self._span:
            return
        self._means.append(sum(self._pending) / self._span)
        self._pending.clear()
        if len(self._means) == self._limit:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(first + second) / 2 for first, second in pairs]
            self._span *= 2

    def __str__(self) -> str:
        """Empty while there is no course to see."""
        if len(self._means) < 2:
            return ""
        low, high = min(self._means), max(self._means)
        step = (high - low) / (len(_BLOCKS) - 1) or 1.0
        return "".join(_BLOCKS[round((mean - low) / step)] for mean in self._means)


class ConsoleSink:
    """On a terminal a bar and the latest metrics, redrawn in place, from the first `tick` or `log` until
    `close`; validation results and messages stand above it. Off a terminal, or with TERM=dumb: one line where the run
    begins and one for each record, and now and then one for a step where records are rare, or steps long. Give
    `start_step` when a run resumes, so that the bar begins there.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        title: str = "train",
        start_step: int = 0,
        show_epoch: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or stderr_console()
        self._formatter = LineFormatter(total_steps, show_epoch=show_epoch)
        self._dashboard: Dashboard | None = None
        self._live: Live | None = None
        self._clock, self._told = clock, clock()
        self._screen = ExitStack()
        self._start_step, self._total_steps = start_step, total_steps
        self._long_steps: LongSteps | None = None
        if is_interactive(self._console):
            self._dashboard = Dashboard(title, total_steps, self._formatter)
            self._dashboard.step = start_step

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        self._formatter.metadata(name, unit)

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        if self._dashboard is None:
            over()
            self._told = self._clock()
            if self._long_steps is not None:
                self._long_steps.heard()
            for line in self._formatter.lines(step, data):
                print_line(self._console, line)
            return
        train = {name: value for name, value in data.items() if name.startswith("train.")}
        others = {name: value for name, value in data.items() if name not in train}
        if step and others:  # a summary belongs to no step, and the end card is about to show it
            for line in self._formatter.lines(step, others):
                print_line(self._console, line, style="bright_blue")
        if step and train:
            self.tick(step[1], train)

    def tick(self, step: int, latest: Mapping[str, Value] = NOTHING) -> None:
        if latest:
            self._formatter.eta.observe(step)
        if self._long_steps is not None:
            self._long_steps.step_ended()
        if self._dashboard is not None:
            self._show(self._dashboard, step, latest)
            self._start_live(self._dashboard)
        elif not latest and step == self._start_step:
            self._begin_lines()
        elif latest and self._clock() - self._told >= LINE_EVERY:
            self.log((0, step), latest)

    def message(self, text: str) -> None:
        print_line(self._console, text)

    def flush(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def close(self) -> None:
        if self._dashboard is not None:
            self._dashboard.ended = True
        if self._long_steps is not None:
            self._long_steps.close()
        if self._live is not None:
            self._live.stop()
        self._screen.close()
        self._live, self._dashboard = None, None

    def _show(self, dashboard: Dashboard, step: int, latest: Mapping[str, Value]) -> None:
        loss = latest.get("train.loss")
        if isinstance(loss, (int, float)) and step > dashboard.step:
            dashboard.loss.add(loss)
        dashboard.step = max(step, dashboard.step)
        if latest:
            dashboard.latest = {**dashboard.latest, **latest}

    def _begin_lines(self) -> None:
        """The first step may take minutes: say that it has begun, and from then on what takes long."""
        over()
        print_line(self._console, f"training: step {self._start_step + 1} of {self._total_steps}")
        if self._long_steps is None:
            self._long_steps = LongSteps(self.message, clock=self._clock)
            self._long_steps.start()

    def _start_live(self, dashboard: Dashboard) -> None:
        if self._live is not None:
            return
        _restore_stderr_in_children()
        self._screen.enter_context(shown_elsewhere())
        # Standard output carries results and stays as it is; warnings on standard error go above the bar.
        self._live = Live(dashboard, console=self._console, redirect_stdout=False, redirect_stderr=True)
        self._live.start(refresh=True)
        # Rich hides the cursor and only a clean end brings it back. A training process is often killed (by
        # the launcher, when another rank fails; by the kernel, for memory), so leave the cursor alone.
        self._console.show_cursor(True)


@functools.cache  # a fork hook cannot be taken back, so register it once
def _restore_stderr_in_children() -> None:
    """A forked data worker must not write through the live display, whose lock the fork may have caught."""

    def restore() -> None:
        if isinstance(sys.stderr, FileProxy):
            sys.stderr = sys.stderr.rich_proxied_file

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=restore)
