"""`paddock preprocess` for people: a card, a live line, and a way to stop that loses nothing."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

from paddock.data.config import TokenizerConfig
from paddock.data.preprocess.inputs import Input
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.journal import Counts, Progress
from paddock.data.preprocess.run import Preprocessed, Snapshot, Watch, preprocess
from paddock.launch.stop import StopRequest
from paddock.process import progress
from paddock.telemetry import format as show
from paddock.telemetry.screen.cards import end_card, run_card
from paddock.telemetry.screen.terminal import is_interactive, print_line, stderr_console

LINE_EVERY = 10.0
"""Seconds between two lines off a terminal, if the user does not count in documents."""


def run_preprocess(job: PreprocessJob, log_interval: int | None = None) -> Preprocessed:
    """Do the job, telling on standard error how it goes. Ctrl-C and SIGTERM end it so that it can be continued."""
    begun = time.monotonic()
    with StopRequest() as stop, _display(log_interval) as display:

        def begins(inputs: Sequence[Input], resumed: Progress | None) -> None:
            run_card("preprocess", _card(job, inputs, resumed))
            display.begin(resumed)

        try:
            result = preprocess(job, Watch(begins, display.advance, lambda: stop.requested is not None))
        except KeyboardInterrupt:
            display.close()
            _say_how_to_continue(job)
            raise
    end_card("done", _results(result, time.monotonic() - begun), _next_commands(job, result))
    return result


class Display:
    """How far a job is: figures on one line."""

    def __init__(self, log_interval: int | None) -> None:
        self._interval = log_interval
        self._console = stderr_console()
        self._bar: Bar | None = None
        if is_interactive(self._console):
            columns = (
                TextColumn("preprocess"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[figures]}"),
            )
            self._bar = Bar(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("preprocess", total=None, figures="")
        self._before = Counts()
        self._first: Snapshot | None = None
        self._begun = self._told = time.monotonic()
        self._told_documents = 0

    def begin(self, resumed: Progress | None) -> None:
        """Work begins here: what earlier runs did must not look like this one's speed."""
        self._before = resumed.counts if resumed else Counts()
        self._told_documents = self._before.documents
        self._begun = self._told = time.monotonic()
        if self._bar is not None:
            self._bar.start()

    def advance(self, snapshot: Snapshot) -> None:
        """A chunk is written."""
        progress()
        if self._first is None:
            self._first = snapshot
        if self._bar is not None:
            self._bar.update(
                self._task, total=snapshot.total, completed=snapshot.consumed, figures=self._figures(snapshot)
            )
        elif self._is_time(snapshot):
            self._told, self._told_documents = time.monotonic(), snapshot.counts.documents
            done = "" if not snapshot.total else f"{snapshot.consumed / snapshot.total:>4.0%}  "
            print_line(self._console, f"{done}{self._figures(snapshot)}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _is_time(self, snapshot: Snapshot) -> bool:
        if self._interval is None:
            return time.monotonic() - self._told >= LINE_EVERY
        return snapshot.counts.documents // self._interval > self._told_documents // self._interval

    def _figures(self, snapshot: Snapshot) -> str:
        seconds = max(time.monotonic() - self._begun, 1e-9)
        counts = snapshot.counts
        cells = [
            f"{counts.documents:,} documents",
            f"{show.rate((counts.documents - self._before.documents) / seconds)} documents/s",
            f"{(counts.bytes - self._before.bytes) / seconds / 1e6:.1f} MB/s",
            f"{show.count(snapshot.tokens)} tokens",
        ]
        if counts.skipped:
            cells.append(f"{counts.skipped:,} bad lines")
        left = self._seconds_left(snapshot, seconds)
        return "  ".join(cells if left is None else [*cells, f"eta {show.duration(round(left))}"])

    def _seconds_left(self, snapshot: Snapshot, seconds: float) -> float | None:
        assert self._first is not None
        done = snapshot.consumed - self._first.consumed
        if snapshot.total is None or done <= 0:
            return None
        return seconds / done * (snapshot.total - snapshot.consumed)


@contextmanager
def _display(log_interval: int | None) -> Iterator[Display]:
    display = Display(log_interval)
    try:
        yield display
    finally:
        display.close()


def _card(job: PreprocessJob, inputs: Sequence[Input], resumed: Progress | None) -> list[tuple[str, str]]:
    sizes = [source.size for source in inputs if source.size is not None]
    known = f", {show.bytes_(sum(sizes))}" if len(sizes) == len(inputs) else ""
    names = ", ".join(source.name for source in inputs[:3]) + (", …" if len(inputs) > 3 else "")
    rows = [
        ("input", f"{names} ({_files(len(inputs))}{known})"),
        ("tokenizer", _tokenizer_row(job)),
        ("output", ", ".join(job.output(key) for key in job.json_keys)),
        ("workers", f"{job.workers}" if job.workers > 1 else "1, in this process"),
    ]
    if resumed is not None:
        at = resumed.position
        source = inputs[at.input]
        rows.append(("continues", f"at {source.unit} {at.line:,} of {source.name}"))
    elif any(source.is_stream for source in inputs):
        rows.append(("note", "a stream is read only once, so this job cannot be continued if it is stopped"))
    return rows


def _tokenizer_row(job: PreprocessJob) -> str:
    if not isinstance(job.tokenizer, TokenizerConfig):
        return str(job.tokenizer.path)
    settings = job.tokenizer.model_dump(exclude_defaults=True)
    return "  ".join(str(value) if name == "kind" else f"{name} {value}" for name, value in settings.items())


def _results(result: Preprocessed, seconds: float) -> list[tuple[str, str]]:
    counts = result.counts
    rows = [("documents", f"{counts.documents:,} in {show.bytes_(counts.bytes)} of {_files(result.num_inputs)}")]
    if counts.empty:
        rows.append(("left out", f"{counts.empty:,} without a token"))
    if counts.skipped:
        rows.append(("bad lines", f"{counts.skipped:,}, listed in {result.skipped_list}"))
    rows.append(("tokens", f"{sum(corpus.tokens for corpus in result.corpora):,}"))
    rows.append(("time", show.duration(seconds)))
    return rows


def _next_commands(job: PreprocessJob, result: Preprocessed) -> list[str]:
    prefix = result.corpora[0].prefix  # which remembers its tokenizer
    commands = [["paddock", "data", "inspect", prefix]]
    if not job.split_sentences:
        commands.append(["paddock", "train", "gpt2/117m", "--data.path", prefix])
    return [shlex.join(command) for command in commands]


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _say_how_to_continue(job: PreprocessJob) -> None:
    if os.path.isfile(f"{job.output_prefix}.progress.json"):
        print("stopped; the same command continues where it was", file=sys.stderr)
    else:
        print("stopped; nothing is left of it, the same command begins again", file=sys.stderr)
