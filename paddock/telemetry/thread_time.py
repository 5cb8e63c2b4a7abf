"""What a thread has done itself, apart from waiting for others."""

from __future__ import annotations

import time
from pathlib import Path

ACCOUNT = Path("/proc/thread-self/schedstat")


def thread_seconds() -> float:
    """Seconds that the calling thread computed, or wanted to while something else had its core; only differences mean
    anything. In a collective it sleeps: what others do meanwhile does not count.

    Linux keeps that account (nanoseconds on a core, and ready for one); elsewhere it is the time on a core alone.
    """
    try:
        computed, ready, _ = ACCOUNT.read_bytes().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(computed) + int(ready)) / 1e9
