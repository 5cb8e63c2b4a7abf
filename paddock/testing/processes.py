"""Other processes, as tests see them: whether they are gone, what they wait for, and where they meet.

Nothing here asks a clock: a busy machine is not a defect. What never happens is ended by the time limit of the test.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


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
