"""What a person sees of a run: live lines on a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping

from rich.console import Console
from rich.file_proxy import FileProxy
from rich.live import Live

from paddock.telemetry.dashboard import Dashboard
from paddock.telemetry.lines import LineFormatter
from paddock.telemetry.stream import Step, Value
from paddock.telemetry.terminal import is_interactive, print_line, stderr_console


class ConsoleSink:
    """On a terminal a bar and the latest metrics, redrawn in place, from the first `tick` or `log` until
    `close`; validation results and messages stand above it. Off a terminal, with NO_COLOR or with TERM=dumb:
    one line for each record. Give `start_step` when a run resumes, so that the bar begins there.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        title: str = "train",
        start_step: int = 0,
        show_epoch: bool = False,
        console: Console | None = None,
    ) -> None:
        self._console = console or stderr_console()
        self._formatter = LineFormatter(total_steps, show_epoch=show_epoch)
        self._dashboard: Dashboard | None = None
        self._live: Live | None = None
        if is_interactive(self._console):
            self._dashboard = Dashboard(title, total_steps, self._formatter.pace)
            self._dashboard.step = start_step

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        self._formatter.metadata(name, unit)

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        if self._dashboard is None:
            for line in self._formatter.lines(step, data):
                print_line(self._console, line)
            return
        train = {name: value for name, value in data.items() if name.startswith("train.")}
        others = {name: value for name, value in data.items() if name not in train}
        if step and others:  # a summary belongs to no step, and the end card is about to show it
            for line in self._formatter.lines(step, others):
                print_line(self._console, line, style="bright_blue")
        if step and train:
            self._show(self._dashboard, train)
            self.tick(step[1])

    def tick(self, step: int) -> None:
        self._formatter.pace.observe(step)
        if self._dashboard is not None:
            self._dashboard.step = max(step, self._dashboard.step)
            self._start_live(self._dashboard)

    def message(self, text: str) -> None:
        print_line(self._console, text)

    def flush(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live, self._dashboard = None, None

    def _show(self, dashboard: Dashboard, train: Mapping[str, Value]) -> None:
        dashboard.cells = self._formatter.cells(train)
        loss, step_time = train.get("train.loss"), train.get("train.step_time")
        if isinstance(loss, (int, float)):
            dashboard.loss.add(loss)
        if isinstance(step_time, (int, float)):
            dashboard.step_time = step_time

    def _start_live(self, dashboard: Dashboard) -> None:
        if self._live is not None:
            return
        _restore_stderr_in_children()
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
