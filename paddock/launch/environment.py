"""What worker processes find in their environment, and whether we are one ourselves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from paddock.cores import num_cores
from paddock.devices.threads import free_threads, usual_threads
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


def with_free_threads(options: LaunchOptions, device: str, *, library: bool = False) -> LaunchOptions:
    """The options with a number of threads for a job on this device, if the host is what computes there. In a `library`
    call the process is somebody's own: a number of threads that it was given stays."""
    from paddock.devices import select

    usual = usual_threads(select(device), library=library)
    return options if usual is None else with_threads(options, max(1, usual // options.nproc_per_node), library=library)


def with_threads(options: LaunchOptions, usual: int, *, library: bool = False) -> LaunchOptions:
    """The options with a number of threads: the one that was asked for, else what is free now, up to the `usual`
    number. What the user or torchrun has set in the environment stays."""
    if options.threads is not None or under_torchrun() or not (library or is_ours()):
        return options
    each = free_threads(usual, options.nproc_per_node, library=library, tells=options.node_rank == 0)
    return replace(options, threads=each)


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
