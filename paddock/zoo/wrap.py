"""A training script of any origin, run as it is: what it prints is passed on, and its numbers become a unified log."""

from __future__ import annotations

import codecs
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

from paddock.errors import ConfigError, DataError
from paddock.telemetry.jsonl import JsonLinesSink
from paddock.telemetry.stream import Value
from paddock.zoo.logs import PREFIXES, metrics_of, parse_record
from paddock.zoo.patterns import LONGEST, LineNumbers, LineReader

METADATA = {
    "train.loss": {"goal": "MINIMIZE", "stage": "TRAIN"},
    "train.ips": {"unit": "samples/s", "goal": "MAXIMIZE", "stage": "TRAIN"},
    "train.lr": {"stage": "TRAIN"},
    "val.loss": {"goal": "MINIMIZE", "stage": "VAL"},
}


class UnifiedLog:
    """Turns lines into records, each at a step that never goes back."""

    def __init__(
        self,
        sink: JsonLinesSink,
        reader: LineReader,
        samples_per_step: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._reader = sink, reader
        self._samples_per_step, self._clock = samples_per_step, clock
        self._epoch = self._step = self._before = 0
        self._printed: int | None = None
        self._timed: tuple[int, float] | None = None
        self.num_records = 0

    def line(self, text: str) -> None:
        """Record what a line says, if it says something."""
        if text.startswith(PREFIXES):
            self._record(text)
            return
        found = self._reader.read(text)
        if not found.metrics:
            return
        self._advance(found)
        metrics: dict[str, Value] = dict(found.metrics)
        if "train.loss" in metrics and "train.ips" not in metrics and (speed := self._speed()) is not None:
            metrics["train.ips"] = speed
        self._write((self._epoch, self._step), metrics)

    def _record(self, text: str) -> None:
        """A line that is a record already keeps its step."""
        try:
            record = parse_record(text)
        except DataError:
            return
        metrics = {name: value for name, value in metrics_of(record).items() if isinstance(value, int | float | str)}
        if record["type"] == "LOG" and metrics:
            step = record.get("step", [])
            self._write((step[0], step[1]) if len(step) >= 2 else (self._epoch, step[0]) if step else (), metrics)

    def _write(self, step: tuple[int, int] | tuple[()], metrics: dict[str, Value]) -> None:
        for name in metrics:
            self._sink.metadata(name, **METADATA.get(name, {}))
        self._sink.log(step, metrics)
        self.num_records += 1

    def _advance(self, found: LineNumbers) -> None:
        """Where training is. Scripts that count steps anew in every epoch are counted on; those that do not count at
        all, by their losses."""
        if found.epoch is not None:
            self._epoch = found.epoch
        if found.step is None:
            self._step += "train.loss" in found.metrics
            return
        if self._printed is not None and found.step < self._printed and "train.loss" in found.metrics:
            self._before = self._step
        if "train.loss" in found.metrics:
            self._printed = found.step
        self._step = max(self._before + found.step, self._step)

    def _speed(self) -> float | None:
        """Samples per second since the last line, where the user says how many a step has."""
        now, last = self._clock(), self._timed
        self._timed = (self._step, now)
        if self._samples_per_step is None or last is None or now <= last[1] or self._step <= last[0]:
            return None
        return (self._step - last[0]) * self._samples_per_step / (now - last[1])


@dataclass(frozen=True)
class Wrapped:
    """How a script ended, and its log."""

    status: int
    """Its exit status; of one that a signal ended, 128 + its number, as a shell says it."""
    log: Path
    num_records: int


def wrap(
    command: Sequence[str],
    log_path: Path,
    reader: LineReader,
    streams: tuple[TextIO, TextIO],
    samples_per_step: int | None = None,
) -> Wrapped:
    """Run a command to its end; what it says on standard output and error is passed on to `streams` as it comes."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}  # a pipe would keep its lines back
    sink = JsonLinesSink(log_path)
    log = UnifiedLog(sink, reader, samples_per_step)
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        with _passing_signals(process):
            _listen(process, streams, log)
            status = process.wait()
    finally:
        sink.close()
    return Wrapped(128 - status if status < 0 else status, log_path, log.num_records)


def command_of(script: str, arguments: Sequence[str]) -> list[str]:
    """How a script is run: a Python file by this Python; a program, such as torchrun, as a shell finds it."""
    if os.path.isfile(script) and script.endswith(".py"):
        return [sys.executable, script, *arguments]
    program = shutil.which(script if os.sep in script or not os.path.isfile(script) else f".{os.sep}{script}")
    if program is None:
        why = "it is no Python file, and cannot be executed" if os.path.isfile(script) else "there is no such file"
        raise ConfigError(f"{script} cannot be run", why=why, fix="paddock zoo wrap SCRIPT -- ARGUMENTS")
    return [program, *arguments]


def _listen(process: subprocess.Popen[bytes], targets: tuple[TextIO, TextIO], log: UnifiedLog) -> None:
    """Copy both streams, and read their lines, until both are closed."""
    with selectors.DefaultSelector() as selector:
        for stream, target in zip((process.stdout, process.stderr), targets, strict=True):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, (target, Lines()))
        while selector.get_map():
            for key, _ in selector.select():
                target, lines = key.data
                chunk = os.read(key.fd, 2**16)
                text, whole = lines.add(chunk)
                target.write(text)
                target.flush()
                for line in whole:
                    log.line(line)
                if not chunk:
                    selector.unregister(key.fileobj)


class Lines:
    """Bytes on their way to becoming lines, which end where a progress bar returns, too. Of what is longer than any
    line of a log, the end is kept."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def add(self, chunk: bytes) -> tuple[str, list[str]]:
        """The text of a chunk, and the lines that are complete now; an empty chunk is the end."""
        text = self._decode(chunk, final=not chunk)
        *whole, rest = (self._rest + text).replace("\r", "\n").split("\n")
        if not chunk:
            whole.append(rest)
        self._rest = rest[-LONGEST:]
        return text, [line.strip() for line in whole if line.strip()]


@contextmanager
def _passing_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whoever stops us means the script; we stay to hear its last words. A terminal's Ctrl-C reaches it anyway."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT:
            process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.kill()
            process.wait()
