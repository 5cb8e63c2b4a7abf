"""How busy the cores of this machine are with the work of others."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

ENOUGH_SECONDS = 0.5
"""Over less time the kernel's counters say nothing."""
IDLE = (3, 4)
"""The columns of /proc/stat that are no work: idle, and waiting for a disk."""


@dataclass(frozen=True)
class Look:
    """At one moment: seconds that our cores have been busy since the machine started, and those of this process."""

    when: float
    busy: float
    own: float


_first: Look | None = None


def begin_watching() -> None:
    """Remember how busy the cores have been until now."""
    global _first
    _first = look()


def look() -> Look | None:
    """None, where the system has no such counters."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return None
    cores = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    rows = [list(map(int, fields)) for name, *fields in map(str.split, lines) if name in cores]
    ticks = sum(sum(count for at, count in enumerate(row[:8]) if at not in IDLE) for row in rows)
    return Look(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4]))


def busy_with_others(first: Look | None, now: Look | None) -> float | None:
    """How many cores other processes kept busy between two looks; None, where that cannot be told."""
    if first is None or now is None or now.when - first.when < ENOUGH_SECONDS:
        return None
    return max(0.0, (now.busy - first.busy) - (now.own - first.own)) / (now.when - first.when)


def busy_since_the_beginning() -> float | None:
    """How many cores other processes have kept busy since this process began to watch."""
    return busy_with_others(_first, look())
