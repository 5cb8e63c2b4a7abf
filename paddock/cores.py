"""The cores of this machine, and how busy they are with the work of others."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

ENOUGH_SECONDS = 0.5
"""Over less time the kernel's counters say nothing."""
STILL_TRUE_SECONDS = 60.0
"""So long `busy_now` goes by what it found."""
IDLE = (3, 4)
"""The columns of /proc/stat that are no work: idle, and waiting for a disk."""


@dataclass(frozen=True)
class Look:
    """At one moment: seconds that our cores have been busy since the machine started, and those of this process."""

    when: float
    busy: float
    own: float


_first: Look | None = None
_newest: tuple[float, float | None] | None = None
"""When `busy_now` looked, and what it found."""


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


def busy_now() -> float | None:
    """The same, for a process that has not watched from its beginning: of the half second that this takes, or of one
    less than a minute ago."""
    global _newest
    if _newest is None or time.monotonic() - _newest[0] > STILL_TRUE_SECONDS:
        first = look()
        if first is None:
            return None
        time.sleep(ENOUGH_SECONDS)
        now = look()
        _newest = time.monotonic(), busy_with_others(first, now)
    return _newest[1]


def num_cores() -> int:
    """Cores that this process may use, which a container or taskset may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def physical_cores() -> int | None:
    """Of the cores that this process may use, how many have no sibling among them: threads of one core share it. None,
    where the system does not tell."""
    place = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    try:
        return len({Path(place.format(number)).read_text() for number in os.sched_getaffinity(0)})
    except (OSError, AttributeError):
        return None
