"""The unified logs that a case wrote: found among its files, read in all of their forms, and held against the case.

This is the one file of the room that knows how a record is read, and where a run says which device it used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paddock.documents import Document, read_document
from paddock.errors import DataError
from paddock.telemetry.jsonl import Record, metrics_of, parse_record, read_metrics
from paddock.telemetry.records import FOREIGN

NAMES = (".json", ".jsonl", ".log", ".txt")
FIRST_BYTES = 2**16
PREFIXES = tuple(prefix.decode() for prefix in FOREIGN)
"""Of records among other lines."""
DEVICE = "device"
ENVIRONMENT = "environment.json"
"""What a run directory of Paddock has beside its log."""
_DEVICE_NAME = re.compile(r"[a-z]+(?=:\d+$|$)", re.IGNORECASE)
"""`npu` and `npu:0`; what a vendor calls a model of it tells nothing."""
MOST_LOGS, LARGEST_LOG = 64, 64 * 2**20
LOSS, SPEED = "train.loss", "train.ips"


def read_log(path: Path) -> list[Record]:
    """The records of a log, whichever dllogger wrote it; a DataError names the line that is none."""
    if path.stat().st_size > LARGEST_LOG:
        raise DataError(f"{path} is too large", why=f"a few steps need no more than {LARGEST_LOG:,} bytes")
    return list(read_metrics(path))


def find_logs(files: Iterable[Path]) -> list[Path]:
    """Those of the files that are unified logs, by their first line."""
    found = [path for path in sorted(files) if path.suffix in NAMES and _begins_as_log(path)]
    return found[:MOST_LOGS]


def _begins_as_log(path: Path) -> bool:
    with open(path, "rb") as stream:
        lines = [line for line in stream.read(FIRST_BYTES).splitlines() if line.strip()]
    try:
        return bool(lines) and "type" in parse_record(lines[0])
    except DataError:
        return False


def records_in(output: str) -> list[Record]:
    """Records among the lines that a script printed."""
    found = []
    for line in output.splitlines():
        if line.startswith(PREFIXES):
            try:
                found.append(parse_record(line))
            except DataError:
                continue
    return found


class _Environment(Document):
    device: str = ""


def devices_of(records: Iterable[Record], beside: Iterable[Path]) -> set[str]:
    """The devices that a run says it used: in a record (`device`), or in a file beside its log."""
    said = [str(metrics_of(record).get(DEVICE, "")) for record in records]
    for path in beside:
        if path.name == ENVIRONMENT:
            with suppress(DataError):  # somebody else's file of that name
                said.append(read_document(path, _Environment, max_bytes=LARGEST_LOG).device)
    return {found.group().lower() for text in said if (found := _DEVICE_NAME.match(text.strip()))}


@dataclass(frozen=True)
class LogSummary:
    """What a log says of training and validation."""

    losses: list[tuple[tuple[int, ...], float]]
    """By step, in the order of the log; of a step that several ranks report, the first."""
    speeds: list[float]
    metrics: dict[str, float]
    """Of the last validation."""
    validates: bool

    @property
    def first_and_last(self) -> tuple[float, float]:
        """The loss at the beginning and at the end: the mean of the first and of the last third."""
        values = [loss for _, loss in self.losses]
        third = max(1, len(values) // 3)
        return math.fsum(values[:third]) / third, math.fsum(values[-third:]) / third


def summarize(records: Iterable[Record]) -> LogSummary:
    """The numbers of a log. What should be a number and is none is left out."""
    losses: dict[tuple[int, ...], float] = {}
    speeds: list[float] = []
    metrics: dict[str, float] = {}
    validates = False
    for record in records:
        if record["type"] != "LOG":
            continue
        data = metrics_of(record)
        step = tuple(record.get("step", ())) or (-1, len(losses))  # some count in words
        if isinstance(loss := data.get(LOSS), int | float):
            losses.setdefault(step, float(loss))
        if isinstance(speed := data.get(SPEED), int | float):
            speeds.append(float(speed))
        validates |= any(name.startswith("val.") for name in data)
        metrics |= {
            name: float(value)
            for name, value in data.items()
            if name.startswith("val.") and isinstance(value, int | float)
        }
    finest = max(map(len, losses), default=0)  # beside steps, some log the mean of an epoch
    steps = [(step, loss) for step, loss in losses.items() if len(step) == finest]
    return LogSummary(steps, speeds, metrics, validates)
