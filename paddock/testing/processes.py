"""Other processes, as tests see them: whether they are gone, and where they meet; and the memory of this one.

Nothing here asks a clock: a busy machine is not a defect. What never happens is ended by the time limit of the test.
"""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType


def is_gone(pid: int | str) -> bool:
    """Whether a process has ended; nobody may have asked how, yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter, if it goes while we read
        return True


def wait_for(condition: Callable[[], bool]) -> None:
    """Until the condition holds, however long that takes."""
    while not condition():
        time.sleep(0.02)


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of this machine that nobody else is given meanwhile; whoever is told of it can listen there."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # bound, but not listening: a second may join
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


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
