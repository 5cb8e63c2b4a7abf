"""`metrics.jsonl`: every record of a run, one JSON object a line, written by one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from paddock.errors import DataError
from paddock.files import atomic_write, disk_errors
from paddock.telemetry.records import encode_record, parse_record
from paddock.telemetry.stream import Step, Value


class JsonLinesSink:
    """Appends records to `path`, each in one unbuffered write.

    A file that exists belongs to a run that goes on: a last line torn by a crash is dropped, `elapsedtime`
    continues where it stopped, and metadata that is already there is not repeated. With `resume_step`, the
    records that the earlier process wrote after that step are dropped too: they are about to come again.
    """

    def __init__(
        self, path: str | Path, *, resume_step: int | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._described: dict[str, dict[str, Any]] = {}
        elapsed_before = 0.0
        with disk_errors(self.path):
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True)
            if self.path.exists():
                elapsed_before = self._restore(resume_step)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._start = clock() - elapsed_before

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        described = {"unit": unit, "GOAL": goal, "STAGE": stage}
        described = {key: value for key, value in described.items() if value is not None}
        if self._described.get(name) != described:
            self._described[name] = described
            self._write({"type": "METADATA", "metric": name, "metadata": described})

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        self._write({"type": "LOG", "step": list(step), "data": data})

    def tick(self, step: int) -> None:
        """A step without a record leaves no trace."""

    def message(self, text: str) -> None:
        """Messages go to `log.txt`."""

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        self._file.close()

    def _write(self, record: dict[str, Any]) -> None:
        now = self._clock()
        times = {
            "timestamp": now,
            "elapsedtime": round(now - self._start, 6),
            "datetime": str(datetime.fromtimestamp(now)),
        }
        rest = encode_record(times | record)
        with disk_errors(self.path):
            while rest:  # a disk that is nearly full takes a part, then refuses the rest with an error
                rest = rest[self._file.write(rest) :]

    def _restore(self, resume_step: int | None) -> float:
        """Rewrite the file with the records that stay; returns the last `elapsedtime` among them."""
        elapsed = 0.0
        keep = True
        with atomic_write(self.path, "wb") as output:
            for line, record in _lines(self.path):
                if record["type"] == "METADATA":
                    self._described[record["metric"]] = record["metadata"]
                else:
                    step = record.get("step", [])
                    if resume_step is not None and len(step) == 2:  # a summary goes with the step before it
                        keep = step[1] <= resume_step
                    if not keep:
                        continue
                elapsed = record.get("elapsedtime", elapsed)
                output.write(line)
        return elapsed


def read_metrics(path: str | Path) -> Iterator[dict[str, Any]]:
    """The records of a metrics file, one at a time, in any spelling of `records.py`.

    A last line torn by a crash, or still being written, is left out; anything else that is not a record is a
    `DataError`.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist", fix="give the metrics.jsonl of a run directory")
    return (record for _, record in _lines(path))


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                record = parse_record(line)
            except ValueError as error:
                if not stream.read(1):
                    return
                raise DataError(
                    f"{path}, line {number} is not a metric record",
                    why=str(error),
                    fix="remove that line, or give the metrics.jsonl of a run directory",
                ) from error
            yield line.rstrip(b"\n") + b"\n", record
