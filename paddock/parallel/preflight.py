"""The processes of a job, tried before they work: every device multiplies, and all of them add up what they have.

What is computed are whole numbers, small enough to be exact in float32 and whatever a device multiplies it with, in any
order of the sums. So a number that is wrong is a fault of a device or of the network, and no rounding.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paddock.devices.peak import measure_gemm_flops
from paddock.errors import MachineError
from paddock.parallel.rendezvous import place_in_job
from paddock.parallel.world import World
from paddock.telemetry import format as show

SIZE, LARGEST_FACTOR = 256, 3
"""Of the matrices whose product is checked: no sum in it exceeds 256 × 9, which float32 and its short forms hold."""
LATENCY_ROUNDS, BANDWIDTH_ROUNDS = 20, 3
QUICK_BYTES, BYTES = 2**20, 2**23
"""What is sent to measure a bandwidth: before training, and when somebody asks for it."""
OUTLIER = 0.5
"""Of the median speed: what is slower is named."""


@dataclass(frozen=True)
class Probe:
    """What one process found. Times are in seconds, rates per second."""

    rank: int
    machine: int
    host: str
    device: str
    product: str = ""
    """What is wrong with its device's product; empty if nothing is."""
    sum: str = ""
    """What is wrong with the sum over all processes, as it came here."""
    flops: float | None = None

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.device} of machine {self.machine}, {self.host})"


@dataclass(frozen=True)
class Link:
    """What two machines reach between them: their first processes, over the job's collective library."""

    machines: tuple[int, int]
    latency: float
    """Seconds for a few bytes there and back."""
    bandwidth: float
    """Bytes a second, one way."""


@dataclass(frozen=True)
class Examination:
    """All of it, the same in every process."""

    probes: list[Probe]
    backend: str
    latency: float
    """Seconds for the sum of one number over all processes."""
    bandwidth: float
    """Bytes a second that a process sends, and receives, while large tensors are summed."""
    links: list[Link]
    notes: list[str]

    def __str__(self) -> str:
        machines = len({probe.machine for probe in self.probes})
        return (
            f"{len(self.probes)} processes on {machines} machine{'s' if machines > 1 else ''} compute as they should; "
            f"{self.backend} takes {self.latency * 1e3:.2g} ms to sum a number, and sends "
            f"{show.bytes_(self.bandwidth)}/s of a large tensor"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def examine(world: World, *, thorough: bool = False) -> Examination:
    """Try all devices and the collectives; an error in every process that names those that are wrong. A `thorough` one
    measures the speed of each device and of the network between machines, too."""
    mine = Probe(
        world.rank,
        int(os.environ.get("GROUP_RANK", 0)),
        socket.gethostname(),
        world.adapter.name if world.adapter.computes_on_host else f"{world.adapter.name}:{place_in_job().local_rank}",
    )
    mine = replace(mine, product=_check_product(world))
    _refuse(_gather(world, mine), "product", "a device multiplies wrongly", _PRODUCT_FIX)
    mine = replace(mine, sum=_check_sum(world))
    _refuse(_gather(world, mine), "sum", f"sums over {world.adapter.backend} are wrong", _SUM_FIX)
    if thorough:
        mine = replace(mine, flops=measure_gemm_flops(world.adapter))
    probes = _gather(world, mine)
    latency, bandwidth = _time_sums(world, BYTES if thorough else QUICK_BYTES)
    links = _time_links(world, probes) if thorough else []
    notes = [*_slow_devices(probes), *_slow_links(links, probes)]
    return Examination(probes, world.adapter.backend, latency, bandwidth, links, notes)


_PRODUCT_FIX = "take that device out of the job; `paddock check device` on its machine names the operator that is wrong"
_SUM_FIX = "look at the network and the collective library of the machines that are named"


def _gather(world: World, mine: Probe) -> list[Probe]:
    return [Probe(**json.loads(told)) for told in world.all_gather(json.dumps(asdict(mine)))]


def _refuse(probes: Sequence[Probe], what: str, title: str, fix: str) -> None:
    wrong = [probe for probe in probes if getattr(probe, what)]
    if wrong:
        named = [f"{probe}: {getattr(probe, what)}" for probe in wrong[:8]]
        more = [f"and {len(wrong) - 8} more"] if len(wrong) > 8 else []
        raise MachineError(f"{title}: {wrong[0]}", why="\n       ".join([*named, *more]), fix=fix)


def _check_product(world: World) -> str:
    generator = torch.Generator().manual_seed(world.rank)
    left, right = (
        torch.randint(-LARGEST_FACTOR, LARGEST_FACTOR + 1, (SIZE, SIZE), generator=generator).float() for _ in range(2)
    )
    found = (left.to(world.device) @ right.to(world.device)).cpu()
    return _describe(found, (left.double() @ right.double()).float())


def _check_sum(world: World) -> str:
    """The sum over all ranks of whole numbers that follow from the rank."""
    if world.size == 1:
        return ""
    numbers = torch.arange(SIZE, dtype=torch.float32) % 7
    mine = (numbers + world.rank % 5).to(world.device)
    dist.all_reduce(mine)
    wanted = world.size * numbers + sum(rank % 5 for rank in range(world.size))
    return _describe(mine.cpu(), wanted)


def _describe(found: Tensor, wanted: Tensor) -> str:
    """What is wrong with numbers that should be equal; empty if they are."""
    broken = ~torch.isfinite(found)
    if broken.any():
        return f"{int(broken.sum())} of {found.numel()} numbers are not finite"
    different = found != wanted
    if not different.any():
        return ""
    worst = int((found - wanted).abs().argmax())
    return (
        f"{int(different.sum())} of {found.numel()} numbers are wrong, such as "
        f"{float(found.flatten()[worst]):.9g} for {float(wanted.flatten()[worst]):.9g}"
    )


def _time_sums(world: World, num_bytes: int) -> tuple[float, float]:
    """Latency and bandwidth of an all_reduce, as the slowest process sees it."""
    if world.size == 1:
        return 0.0, 0.0
    one, many = (torch.zeros(count, device=world.device) for count in (1, num_bytes // 4))
    latency = _median_time(world, lambda: dist.all_reduce(one), LATENCY_ROUNDS)
    seconds = _median_time(world, lambda: dist.all_reduce(many), BANDWIDTH_ROUNDS)
    told = [json.loads(text) for text in world.all_gather(json.dumps([latency, seconds]))]
    latency, seconds = (max(column) for column in zip(*told, strict=True))
    # Of a ring, which sends least: each process sends all but its own part of the tensor, twice.
    return latency, 2 * (world.size - 1) / world.size * num_bytes / seconds


def _median_time(world: World, action: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds + 1):  # the first one connects
        world.adapter.synchronize()
        begun = time.perf_counter()
        action()
        world.adapter.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])


def _time_links(world: World, probes: Sequence[Probe]) -> list[Link]:
    """Every machine with the next one, as many pairs at a time as have no machine in common."""
    first: dict[int, int] = {}
    for probe in probes:
        first.setdefault(probe.machine, probe.rank)
    found: list[Link] = []
    for pairs in _rounds(sorted(first)):
        world.barrier()
        pair = next((pair for pair in pairs if world.rank in (first[pair[0]], first[pair[1]])), None)
        if pair is not None:
            measured = _time_link(world, *(first[machine] for machine in pair))
            if world.rank == first[pair[0]]:
                found.append(Link(pair, *measured))
    told = [
        link for text in world.all_gather(json.dumps([asdict(link) for link in found])) for link in json.loads(text)
    ]
    links = [Link(tuple(one["machines"]), one["latency"], one["bandwidth"]) for one in told]
    return sorted(links, key=lambda link: link.machines)


def _rounds(machines: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Neighbours in a ring, in two or three rounds in which each machine has one partner at most."""
    count = len(machines)
    if count < 2:
        return
    ring = [(machines[place], machines[(place + 1) % count]) for place in range(count if count > 2 else 1)]
    last = [ring.pop()] if count > 2 and count % 2 else []
    yield from (pairs for pairs in (ring[::2], ring[1::2], last) if pairs)


def _time_link(world: World, here: int, there: int) -> tuple[float, float]:
    one, many = (torch.zeros(count, device=world.device) for count in (1, BYTES // 4))

    def back_and_forth(tensor: Tensor) -> None:
        for sender, receiver in ((here, there), (there, here)):
            if world.rank == sender:
                dist.send(tensor, receiver)
            else:
                dist.recv(tensor, sender)

    latency = _median_time(world, lambda: back_and_forth(one), LATENCY_ROUNDS)
    seconds = _median_time(world, lambda: back_and_forth(many), BANDWIDTH_ROUNDS)
    return latency, 2 * BYTES / seconds


def _slow_devices(probes: Sequence[Probe]) -> Iterator[str]:
    speeds = {probe: probe.flops for probe in probes if probe.flops is not None}
    usual = statistics.median(speeds.values()) if speeds else 0.0
    for probe, flops in speeds.items():
        if flops < OUTLIER * usual:
            yield f"{probe} multiplies at {flops / usual:.0%} of the usual speed"


def _slow_links(links: Sequence[Link], probes: Sequence[Probe]) -> Iterator[str]:
    if len(links) < 3:
        return
    hosts = {probe.machine: probe.host for probe in probes}
    usual = statistics.median(link.bandwidth for link in links)
    for link in links:
        if link.bandwidth < OUTLIER * usual:
            a, b = (f"machine {machine} ({hosts[machine]})" for machine in link.machines)
            yield f"{a} and {b} exchange data at {link.bandwidth / usual:.0%} of the usual speed"
