"""What worker processes find in their environment, and whether we are one ourselves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from paddock.cores import busy_now, busy_since_the_beginning, physical_cores
from paddock.launch.options import LaunchOptions
from paddock.parallel.rendezvous import interface_towards, place_in_job
from paddock.process import is_ours


def under_torchrun() -> bool:
    """Whether this process is already a worker of an elastic agent: a user's torchrun, or our own."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"))


def world_of(options: LaunchOptions) -> int:
    """How many processes the job has: as many as we start; where we start none, as the environment says."""
    return options.world_size if options.world_size > 1 and not under_torchrun() else place_in_job().world_size


def process_counts(options: LaunchOptions) -> dict[str, int]:
    """How many processes on how many machines there are or will be, and their threads where that was decided, as launch
    options that start as many again."""
    threads = {} if options.threads is None else {"threads": options.threads}
    if not under_torchrun():
        return {"nproc_per_node": options.nproc_per_node, "nnodes": options.nnodes, **threads}
    place = place_in_job()
    nodes = place.world_size // place.local_world_size
    return {"nproc_per_node": place.local_world_size, "nnodes": nodes, **threads}


def num_cores() -> int:
    """Cores that this process may use, which a container or taskset may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_for(cores: int, processes: int, others: float | None) -> int:
    """Threads of each process: the cores that are free, shared out."""
    free = cores if others is None else round(cores - others)
    return max(1, free // processes)


def with_free_threads(options: LaunchOptions, device: str, *, library: bool = False) -> LaunchOptions:
    """The options with a number of threads for a job on this device, if the host is what computes there. In a `library`
    call the process is somebody's own: a number of threads that it was given stays."""
    import torch

    from paddock.devices import select

    if not select(device).computes_on_host:
        return options
    threads = torch.get_num_threads()
    if library and threads not in (num_cores(), physical_cores()):  # torch's own choice is one of these
        return options
    return with_threads(options, max(1, threads // options.nproc_per_node), library=library)


_told: LaunchOptions | None = None
"""What the last note was about."""


def with_threads(options: LaunchOptions, usual: int, *, library: bool = False) -> LaunchOptions:
    """The options with a number of threads: the one that was asked for, else what is free now, up to the `usual`
    number. What the user or torchrun has set in the environment stays.

    Threads of one product wait for each other. Where one of two has to share its core, both crawl: on a loaded machine
    two gave a fifth of the speed of one.
    """
    global _told
    if options.threads is not None or "OMP_NUM_THREADS" in os.environ or under_torchrun():
        return options
    if not library and not is_ours():
        return options
    others = busy_now() if library else busy_since_the_beginning()
    threads = min(usual, threads_for(num_cores(), options.nproc_per_node, others))
    chosen = replace(options, threads=threads)
    if threads < usual and others is not None and options.node_rank == 0 and chosen != _told:
        each = f"{threads} thread{'' if threads == 1 else 's'} each, and not {usual}"
        told = f"other work keeps {others:.1f} of {num_cores()} cores busy, so that processes get {each}"
        print(f"note: {told}; {'threads=' if library else '--threads'} says otherwise", file=sys.stderr)
        _told = chosen
    return chosen


@contextmanager
def threads_in_use(options: LaunchOptions) -> Iterator[None]:
    """Compute with as many threads as the options say, in this process."""
    if options.threads is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def worker_environment(options: LaunchOptions) -> dict[str, str]:
    """Variables to add for the workers of this machine; what the user has set stays."""
    usual = max(1, num_cores() // options.nproc_per_node)
    wanted = {"OMP_NUM_THREADS": str(options.threads or usual)}
    interface = interface_towards("127.0.0.1" if options.nnodes == 1 else options.master_addr or "")
    if interface is not None:
        # Left alone, gloo takes the interface of the host name, which can be open to others, slow or firewalled.
        wanted["GLOO_SOCKET_IFNAME"] = interface
    asked = {"OMP_NUM_THREADS"} if options.threads is not None else set()
    return {name: value for name, value in wanted.items() if name not in os.environ or name in asked} | _devices_to_see(
        options
    )


def _devices_to_see(options: LaunchOptions) -> dict[str, str]:
    """So that process N of this machine has the Nth of the devices that a rank table names. Whatever the user has
    set, the table is what all machines go by."""
    from paddock.devices import all_adapters
    from paddock.launch.placement.find import devices_of

    devices = devices_of(options)
    if devices is None:
        return {}
    variables = [adapter.visible_devices for adapter in all_adapters() if adapter.visible_devices is not None]
    return dict.fromkeys(variables, ",".join(map(str, devices)))


@contextmanager
def added_to_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a while: the agent gives its workers a copy of this process's environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
