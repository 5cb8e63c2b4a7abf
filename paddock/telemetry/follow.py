"""Hearing what a run reports while it runs, in this process or in others: its metrics file, followed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from paddock.telemetry.records import parse_record

Callback = Callable[[int, dict[str, Any]], None]
"""Called with a step and the metrics that were reported at it, from a thread of its own."""
PAUSE = 0.2


class Follower:
    """Passes every record of a metrics file, from now on, to callbacks; all of them before it ends.

    An error of a callback is raised at the end: it does not cost the run."""

    def __init__(self, path: Path, callbacks: Sequence[Callback]) -> None:
        self._path, self._callbacks = path, callbacks
        self._offset, self._file, self._since = 0, -1, time.time()
        self._error: Exception | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="metrics", daemon=True)

    def __enter__(self) -> Follower:
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
            while not self._done.wait(PAUSE):
                self._pass_on()
            self._pass_on()
        except Exception as error:
            self._error = error

    def _pass_on(self) -> None:
        """What was added since the last look. A resumed run replaces the file before it goes on."""
        if not self._path.is_file():
            return
        with open(self._path, "rb") as stream:
            if self._file != os.fstat(stream.fileno()).st_ino:
                self._file, self._offset = os.fstat(stream.fileno()).st_ino, 0
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                record = parse_record(line)
                if record["type"] == "LOG" and record.get("timestamp", 0.0) >= self._since and record.get("step"):
                    for callback in self._callbacks:
                        callback(record["step"][-1], dict(record["data"]))
