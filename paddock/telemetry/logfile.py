"""`log.txt`: the lines and messages of a run as a person would have seen them, with the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from paddock.files import disk_errors
from paddock.telemetry.lines import LineFormatter
from paddock.telemetry.stream import Step, Value


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

    def tick(self, step: int) -> None:
        self._formatter.pace.observe(step)

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
