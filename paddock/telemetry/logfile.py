"""Records as lines of text, and `log.txt`, the file of those lines and messages with their time.

A line is aligned for the eye, and has `label value` pairs two spaces apart for a script.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from paddock.files import disk_errors
from paddock.telemetry import format
from paddock.telemetry.meter import EtaEstimator
from paddock.telemetry.stream import NOTHING, Step, Value


class LineFormatter:
    """Turns records into lines. Columns keep the widest width seen so far, so that they stay aligned.

    The unit of a metric, where it ends in `/s`, is its label: `images/s` rather than `samples/s`.
    """

    def __init__(
        self,
        total_steps: int | None = None,
        *,
        show_epoch: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_steps = total_steps
        self.show_epoch = show_epoch
        self.eta = EtaEstimator(clock=clock)
        self._units: dict[str, str] = {}
        self._widths: dict[str, int] = {}

    def metadata(self, name: str, unit: str | None) -> None:
        if unit is not None:
            self._units[name] = unit

    def lines(self, step: Step, data: Mapping[str, Value]) -> list[str]:
        """A line for the training metrics, a line for each other group (`val.…`, `summary.…`)."""
        groups: dict[str, dict[str, Value]] = {}
        for name, value in data.items():
            groups.setdefault(name.partition(".")[0], {})[name] = value
        return [self._line(step, group, members) for group, members in groups.items()]

    def cells(self, data: Mapping[str, Value]) -> list[tuple[str, str]]:
        """Labels and values, the well-known training metrics first and in a fixed order."""
        known = [f"train.{name}" for name in _KNOWN if f"train.{name}" in data]
        others = [name for name in data if name not in known and not name.startswith(_HIDDEN)]
        return [self._cell(name, data[name]) for name in known + others]

    def _line(self, step: Step, group: str, data: Mapping[str, Value]) -> str:
        cells = self.cells(data)
        left = None
        if group == "train" and step and self.total_steps is not None:
            step_time = data.get("train.step_time")
            self.eta.observe(step[1])
            left = self.eta.seconds_left(self.total_steps, step_time if isinstance(step_time, float) else None)
        if left is not None:
            cells.append(("eta", format.duration(round(left))))
        texts = [self._padded(f"{group}/{label}", f"{label} {value}") for label, value in cells]
        return "  ".join(self._position(step) + texts).rstrip()

    def _position(self, step: Step) -> list[str]:
        if not step:
            return []
        total = "" if self.total_steps is None else str(self.total_steps)
        position = [f"step {step[1]:>{max(len(total), 5)}}" + (f"/{total}" if total else "")]
        return [*position, f"epoch {step[0]}"] if self.show_epoch else position

    def _cell(self, name: str, value: Value) -> tuple[str, str]:
        short = name.removeprefix("train.")
        label, show = _KNOWN.get(short, (short, general)) if name.startswith("train.") else (name, general)
        unit = self._units.get(name, "")
        if unit.endswith("/s") and show is format.rate:
            label = unit
        text = value if isinstance(value, str) else show(value)
        return label, text.replace(" ", "")

    def _padded(self, column: str, text: str) -> str:
        self._widths[column] = max(self._widths.get(column, 0), len(text))
        return text.ljust(self._widths[column])


def general(value: float) -> str:
    """Any number: integers whole, others with four decimals at most and four digits at least."""
    if isinstance(value, int):
        return str(value)
    if 0.001 <= abs(value) < 1000:
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"
    return f"{value:.4g}"


def _loss(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.4g}"


def _learning_rate(value: float) -> str:
    return f"{value:.2e}"


def _norm(value: float) -> str:
    return f"{value:.2f}" if 0.1 <= abs(value) < 1000 else f"{value:.2e}"


_KNOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "loss": ("loss", _loss),
    "lr": ("lr", _learning_rate),
    "grad_norm": ("grad_norm", _norm),
    "ips": ("samples/s", format.rate),
    "tokens_per_second": ("tokens/s", format.rate),
    "utilisation": ("util", format.percent),
    "achieved_flops": ("achieved", format.flops),
    "step_time": ("step_time", format.duration),
    "data_time": ("data_time", format.duration),
    "wait_time": ("wait_time", format.duration),
    "memory": ("memory", format.bytes_),
}


def with_unit(metric: str, value: float) -> str:
    """A number as its metric is told everywhere: memory in bytes, times in seconds and minutes."""
    kind = metric.rpartition(".")[2]
    if kind.endswith("_time"):
        return format.duration(value)
    return _KNOWN[kind][1](value) if kind in _KNOWN else general(value)


_HIDDEN = (
    *("train.compute_time", "train.tokens_per_second_per_device", "train.busy_time."),
    *("train.own_time", "summary.own_time"),
)
"""In the file, not worth a column: they follow from others, or are many."""


class LogFileSink:
    """Appends to `path`; a resumed run goes on in the same file."""

    def __init__(
        self,
        path: str | Path,
        total_steps: int | None = None,
        *,
        show_epoch: bool = False,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.path = Path(path)
        self._formatter = LineFormatter(total_steps, show_epoch=show_epoch)
        self._now = now
        with disk_errors(self.path):
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True)
            torn = _ends_in_mid_line(self.path)
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
            if torn:
                self._file.write("\n")

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        self._formatter.metadata(name, unit)

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        for line in self._formatter.lines(step, data):
            self._write(line)

    def tick(self, step: int, latest: Mapping[str, Value] = NOTHING) -> None:
        if latest:
            self._formatter.eta.observe(step)

    def message(self, text: str) -> None:
        self._write(text)

    def flush(self) -> None:
        with disk_errors(self.path):
            self._file.flush()

    def close(self) -> None:
        with disk_errors(self.path):
            self._file.close()

    def _write(self, text: str) -> None:
        with disk_errors(self.path):
            self._file.write(f"{self._now():%Y-%m-%d %H:%M:%S}  {text}\n")
            self._file.flush()


def _ends_in_mid_line(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with open(path, "rb") as stream:
        stream.seek(-1, 2)
        return stream.read(1) != b"\n"
