"""How many threads a process computes with, where the host computes: cores that other work keeps busy are left to it.

Threads of one product wait for each other. Where one of two has to share its core, both crawl: on a loaded machine two
gave a fifth of the speed of one.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.launch.environment import num_cores, under_torchrun
from paddock.launch.options import LaunchOptions
from paddock.process import is_ours

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


def threads_for(cores: int, processes: int, others: float | None) -> int:
    """Threads of each process: the cores that are free, shared out."""
    free = cores if others is None else round(cores - others)
    return max(1, free // processes)


def with_threads(options: LaunchOptions, usual: int) -> LaunchOptions:
    """The options with a number of threads: the one that was asked for, else what is free now, up to the `usual`
    number. What the user or torchrun has set in the environment stays."""
    if options.threads is not None or "OMP_NUM_THREADS" in os.environ or under_torchrun() or not is_ours():
        return options
    others = busy_with_others(_first, look())
    threads = min(usual, threads_for(num_cores(), options.nproc_per_node, others))
    if threads < usual and others is not None:
        each = f"{threads} thread{'' if threads == 1 else 's'} each, and not {usual}"
        told = f"other work keeps {others:.1f} of {num_cores()} cores busy, so that processes get {each}"
        print(f"note: {told}; --threads says otherwise", file=sys.stderr)
    return replace(options, threads=threads)
