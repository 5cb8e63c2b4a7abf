"""How much memory a piece of work takes at its height, on Linux."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from types import TracebackType

STATUS = Path("/proc/self/status")


class PeakMemory:
    """Watches this process's own memory (not that of mapped files); `growth` is by how many bytes it rose at most."""

    def __enter__(self) -> PeakMemory:
        gc.collect()
        self._begin = self._peak = anonymous()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.0005):
            self._peak = max(self._peak, anonymous())

    @property
    def growth(self) -> int:
        return self._peak - self._begin

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self._peak = max(self._peak, anonymous())


def anonymous() -> int:
    """Bytes of memory that belong to no file."""
    for line in STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{STATUS} has no RssAnon")
