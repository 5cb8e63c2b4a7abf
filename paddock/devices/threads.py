"""How many threads compute where the host does: as many as other work leaves cores for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from paddock.cores import busy_now, busy_since_the_beginning, num_cores, physical_cores
from paddock.devices.adapter import DeviceAdapter


def threads_for(cores: int, processes: int, others: float | None) -> int:
    """Threads of each process: the cores that are free, shared out."""
    free = cores if others is None else round(cores - others)
    return max(1, free // processes)


def usual_threads(adapter: DeviceAdapter, *, library: bool = False) -> int | None:
    """torch's own number for this process; None, where the device computes by itself. In a `library` call the process
    is somebody's own, and None, too, where it was given another number."""
    import torch

    if not adapter.computes_on_host:
        return None
    threads = torch.get_num_threads()
    return None if library and threads not in (num_cores(), physical_cores()) else threads


_told: tuple[int, int] | None = None
"""What the last note was about."""


def free_threads(usual: int, processes: int = 1, *, library: bool = False, tells: bool = True) -> int | None:
    """Threads for each process, by what is free now, up to the `usual` number; None, if the environment has said it.

    Threads of one product wait for each other. Where one of two has to share its core, both crawl: on a loaded machine
    two gave a fifth of the speed of one.
    """
    global _told
    if "OMP_NUM_THREADS" in os.environ:
        return None
    others = busy_now() if library else busy_since_the_beginning()
    threads = min(usual, threads_for(num_cores(), processes, others))
    if threads < usual and others is not None and tells and _told != (threads, processes):
        each = f"{threads} thread{'' if threads == 1 else 's'} each, and not {usual}"
        told = f"other work keeps {others:.1f} of {num_cores()} cores busy, so that processes get {each}"
        print(f"note: {told}; {'threads=' if library else '--threads'} says otherwise", file=sys.stderr)
        _told = threads, processes
    return threads


@contextmanager
def threads_in_use(threads: int | None) -> Iterator[None]:
    """Compute with so many threads, in this process; None leaves them as they are."""
    if threads is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
