"""`metrics.jsonl`: every record of a run, one JSON object a line, written by one process, read and followed by others.

Every attempt of a run (the first, and each time that it goes on) has a number, which its records bear as `attempt`, and
begins with a record that also says after which step it goes on: `{"type": "METADATA", "metric": "attempt", "metadata":
{"number": 2, "after_step": 100}}`. What an earlier attempt had recorded of later steps stays, rewound.

The same writer and the same reader serve the logs of other scripts (`dllogger.py`, `logs.py`).
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from paddock.documents import Document, Natural, shape_json
from paddock.errors import DataError
from paddock.files import disk_errors, open_regular
from paddock.telemetry.records import (
    Record,
    encode_record,
    is_foreign,
    looks_like_record,
    metrics_of,
    parse_record,
)
from paddock.telemetry.stop import wish_of
from paddock.telemetry.stream import NOTHING, Step, Value

OnMetrics = Callable[[int, dict[str, Any]], object]
"""Called with a step and the metrics that were reported at it, from a thread of its own; it may return a `Stop`."""
POLL_INTERVAL = 0.2
"""Seconds between two looks at a file that is followed."""
ATTEMPT = "attempt"
"""The key of a record's attempt, and what the record that begins one is about."""
_ATTEMPT_BEGINS = b'"metric": "attempt"'
_LONGEST = 2**24
"""Bytes of a line: a record has a few hundred."""


class AttemptBegins(Document):
    """What the first record of an attempt says."""

    number: Natural
    after_step: Natural


class JsonLinesSink:
    """Appends records to `path`, each in one unbuffered write.

    A file that exists belongs to a run that goes on: a last line torn by a crash is dropped, `elapsedtime`
    continues where it stopped, and metadata that is already there is not repeated. `attempt` numbers the records, and
    `resume_step` is the step after which the attempt goes on: what is there of later steps counts no more.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        attempt: int | None = None,
        resume_step: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._attempt = {} if attempt is None else {ATTEMPT: attempt}
        self._described: dict[str, dict[str, Any]] = {}
        elapsed_before = 0.0
        with disk_errors(self.path):
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True)
            if self.path.exists():
                elapsed_before = self._restore()
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._start = clock() - elapsed_before
        if attempt is not None:
            begins = AttemptBegins(number=attempt, after_step=resume_step)
            self.write({"type": "METADATA", "metric": ATTEMPT, "metadata": begins.model_dump()})

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        described = {"unit": unit, "GOAL": goal, "STAGE": stage}
        described = {key: value for key, value in described.items() if value is not None}
        if self._described.get(name) != described:
            self._described[name] = described
            self.write({"type": "METADATA", "metric": name, "metadata": described})

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        self.write({"type": "LOG", "step": list(step), "data": data})

    def tick(self, step: int, latest: Mapping[str, Value] = NOTHING) -> None:
        """A step without a record leaves no trace."""

    def message(self, text: str) -> None:
        """Messages go to `log.txt`."""

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        self._file.close()

    def write(self, record: Mapping[str, Any]) -> None:
        """Append any record, with its time."""
        now = self._clock()
        times = {
            "timestamp": now,
            "elapsedtime": round(now - self._start, 6),
            "datetime": str(datetime.fromtimestamp(now)),
        }
        rest = encode_record({**times, **record, **self._attempt})
        with disk_errors(self.path):
            while rest:  # a disk that is nearly full takes a part, then refuses the rest with an error
                rest = rest[self._file.write(rest) :]

    def _restore(self) -> float:
        """Cut off a line that was torn; returns the last `elapsedtime`."""
        elapsed, end = 0.0, 0
        for end, record in _records(self.path):  # noqa: B007 - used behind the loop
            if record["type"] == "METADATA":
                self._described[record["metric"]] = record["metadata"]
            elapsed = record.get("elapsedtime", elapsed)
        with open(self.path, "r+b") as stream:
            stream.truncate(end)
            stream.seek(max(end - 1, 0))
            if stream.read(1) not in (b"", b"\n"):  # it lacks just its newline
                stream.write(b"\n")
        return elapsed


@dataclass
class Tolerated:
    """What a log has besides whole records, counted by whoever reads it and does not mind."""

    other_lines: int = 0
    """Lines that are no records: what a program printed, or a foreign record that is broken."""
    first_other: str = ""
    """Where the first one is, and why it is none."""
    is_torn: bool = False
    """Whether the last line was cut off."""
    has_open_end: bool = False
    """Whether the last line is whole but for its end, in a table: nobody can tell where it was to end."""
    rewound: int = 0
    """Records that a later attempt took back."""

    def is_torn_by(self, line: bytes) -> bool:
        """Note whether a last line, which is no record, began as one."""
        self.is_torn = looks_like_record(line) or not line.endswith(b"\n")
        return self.is_torn

    def takes(self, line: bytes, number: int, why: str) -> bool:
        """Count a line that is no record; False if it is one of ours, which nothing but damage can have broken."""
        if looks_like_record(line) and not is_foreign(line):
            return False
        self.other_lines += 1
        self.first_other = self.first_other or f"line {number}: {why}"
        return True


def read_metrics(path: str | Path, *, rewound: bool = False, tolerated: Tolerated | None = None) -> Iterator[Record]:
    """The records of a metrics file, one at a time, in any of the three spellings.

    Steps that a later attempt did again are given once, as it found them; with `rewound` as often as they were done.
    A last line torn by a crash, or still being written, is left out; anything else that is not a record is a
    `DataError`. Where something is to be `tolerated`, a line that is no record of ours is counted instead: other
    programs write into the same file, and foreign writers tear their lines. Ours never do.

    >>> for record in read_metrics("runs/tour/metrics.jsonl"):
    ...     print(record)
    """
    path = Path(path)
    if not os.path.isfile(path):
        raise DataError(f"{path} does not exist", fix="give the metrics.jsonl of a run directory")
    records = (record for _, record in _records(path, tolerated))
    return records if rewound else _last_of_each_step(records, _steps_kept(path), tolerated or Tolerated())


def read_tail(path: Path, max_bytes: int = 2**17) -> list[Record]:
    """The last records of a metrics file of any length; a last line torn by a crash is left out."""
    with open_regular(path) as stream:
        begin = max(stream.seek(0, os.SEEK_END) - max_bytes, 0)
        stream.seek(begin)
        lines = stream.read(max_bytes).split(b"\n")[1 if begin else 0 :]
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                records.append(parse_record(line))
        except DataError as error:
            if number == len(lines):
                break
            raise DataError(f"{path} is damaged near its end", why=error.why) from None
    return records


def _steps_kept(path: Path) -> list[float]:
    """For what comes before the first attempt in a file, and for every attempt in it: the last step that the later
    ones left standing."""
    begins = []
    with open_regular(path) as stream:
        for line in _lines(stream):
            if _ATTEMPT_BEGINS not in line:
                continue
            with suppress(DataError):  # who reads all lines says which of them is none
                record = parse_record(line)
                if record.get("metric") == ATTEMPT:
                    begins.append(shape_json(record.get("metadata"), AttemptBegins, str(path)))
    kept = [math.inf]
    for attempt in reversed(begins):
        kept.append(min(kept[-1], attempt.after_step))
    return kept[::-1]


def _last_of_each_step(records: Iterator[Record], kept: list[float], tolerated: Tolerated) -> Iterator[Record]:
    attempt, stands = 0, True
    for record in records:
        if record["type"] == "METADATA":
            if record["metric"] == ATTEMPT:
                attempt, stands = attempt + 1, True
        elif len(record.get("step", ())) == 2:  # a summary goes with the step before it
            stands = attempt >= len(kept) or record["step"][1] <= kept[attempt]
        if stands or record["type"] == "METADATA":
            yield record
        else:
            tolerated.rewound += 1


def _records(path: Path, tolerated: Tolerated | None = None) -> Iterator[tuple[int, Record]]:
    """Every record, with the number of bytes up to its end."""
    end = 0
    with open_regular(path) as stream:
        for number, line in enumerate(_lines(stream), start=1):
            end += len(line)
            if not line.strip():
                continue
            try:
                record = parse_record(line)
            except DataError as error:
                if not _more(stream) and (tolerated is None or tolerated.is_torn_by(line)):
                    return
                if tolerated is not None and tolerated.takes(line, number, error.why):
                    continue
                raise DataError(
                    f"{path}, line {number} is not a metric record",
                    why=error.why,
                    fix="remove that line, or give the metrics.jsonl of a run directory",
                ) from None
            if record.get("metric") == ATTEMPT:
                shape_json(record.get("metadata"), AttemptBegins, f"{path}, line {number}")
            yield end, record


def _more(stream: BinaryIO) -> bool:
    """Whether there is anything behind what was read."""
    place = stream.tell()
    found = bool(stream.read(1))
    stream.seek(place)
    return found


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, one that is longer than any record in pieces."""
    return iter(lambda: stream.readline(_LONGEST), b"")


class MetricsFollower:
    """Passes every record of a metrics file, from now on, to callbacks; all of them before it ends.

    A `Stop` that one returns or raises goes to `ask_to_stop`. Any other error is raised at the end: it does not cost
    the run."""

    def __init__(self, path: Path, callbacks: Sequence[OnMetrics], ask_to_stop: Callable[[str], None]) -> None:
        self._path, self._callbacks, self._ask_to_stop = path, callbacks, ask_to_stop
        self._offset, self._since = 0, time.time()
        self._error: Exception | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="metrics", daemon=True)

    def __enter__(self) -> MetricsFollower:
        if self._callbacks:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._callbacks:
            return
        self._done.set()
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error

    def _follow(self) -> None:
        try:
            while not self._done.wait(POLL_INTERVAL):
                self._pass_on()
            self._pass_on()
        except Exception as error:
            self._error = error

    def _pass_on(self) -> None:
        """What was added since the last look."""
        if not self._path.is_file():
            return
        with open(self._path, "rb") as stream:
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                record = parse_record(line)
                if record["type"] == "LOG" and record.get("timestamp", 0.0) >= self._since and record.get("step"):
                    for callback in self._callbacks:
                        wish = wish_of(callback, record["step"][-1], dict(metrics_of(record)))
                        if wish is not None:
                            self._ask_to_stop(wish)
