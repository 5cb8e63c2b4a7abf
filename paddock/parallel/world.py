"""The processes of a job as one of them sees it: who am I, how many are we, and a few agreements.

What ranks agree on in words and small numbers (whether to stop, how much work a step is) goes over a gloo group of its
own, on the host: the device, which is busy with the step before, is not asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from paddock.devices import DeviceAdapter, prepare
from paddock.devices.config import FallbackSetting
from paddock.devices.fallback import Ledger, show_ledger
from paddock.parallel.attempts import store_of_attempt
from paddock.parallel.reach import store_of_job
from paddock.parallel.rendezvous import Place, check_interfaces, could_not_meet, place_in_job
from paddock.process import announced, mortal


@dataclass(frozen=True)
class World:
    """This process among all. With one process there is no process group, and agreements cost nothing."""

    rank: int
    size: int
    adapter: DeviceAdapter
    device: torch.device
    control: dist.ProcessGroup | None = None
    """All processes, over gloo; None is the default group."""

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes the run directory and talks to the user."""
        return self.rank == 0

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """The sums of small numbers over all processes, on the host."""
        return self.start_all_reduce_sum(values)()

    def start_all_reduce_sum(self, values: Sequence[float]) -> Callable[[], list[float]]:
        """The same, begun now: what is returned waits for the sums."""
        if self.size == 1:
            return lambda: list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        work = dist.all_reduce(tensor, group=self.control, async_op=True)
        assert work is not None

        def wait() -> list[float]:
            work.wait()
            return [float(value) for value in tensor.tolist()]

        return wait

    def read_sums(self, values: Sequence[Tensor]) -> list[float]:
        """The sums of single numbers on the device over all processes: reduced together, and read back at once."""
        kind = torch.float64 if self.adapter.float64 else torch.float32
        together = torch.stack([value.to(kind) for value in values])
        if self.size > 1:
            dist.all_reduce(together)
        return [float(value) for value in together.tolist()]

    def broadcast(self, value: str) -> str:
        """What rank 0 says, on every rank."""
        if self.size == 1:
            return value
        return gather_texts(value if self.rank == 0 else "", self.control)[0]

    def all_gather(self, value: str) -> list[str]:
        """What every rank says, on every rank."""
        if self.size == 1:
            return [value]
        return gather_texts(value, self.control)

    def barrier(self) -> None:
        """Wait for everyone."""
        if self.size > 1:
            dist.barrier(group=self.control)


def gather_texts(text: str, group: dist.ProcessGroup | None = None) -> list[str]:
    """What every process says, on all of them; None is the host's group of the world that this process joined.

    As bytes in tensors: torch's own ways to send an object unpickle what comes, and so run whatever a sender likes.
    """
    group = group or _host_group
    content = text.encode(errors="surrogatepass")  # a path may be no Unicode
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(lengths, torch.tensor([len(content)]), group=group)
    longest = max(int(length) for length in lengths)
    texts = [torch.zeros(longest, dtype=torch.uint8) for _ in lengths]
    dist.all_gather(texts, torch.frombuffer(bytearray(content.ljust(longest + 1)), dtype=torch.uint8)[:-1], group=group)
    told = zip(texts, lengths, strict=True)
    return [bytes(said[: int(length)].tolist()).decode(errors="surrogatepass") for said, length in told]


_host_group: dist.ProcessGroup | None = None
"""The control group of the world that this process has joined; None is the default group."""


@contextmanager
def join_world(adapter: DeviceAdapter, fallback: FallbackSetting = "cpu") -> Iterator[World]:
    """Join the processes that the launcher (or torchrun) started with this one; leave them at the end. `fallback` is
    what is done about operators that the device lacks: the main process lists at the end what all of them did."""
    global _host_group
    place = place_in_job()
    prepare(adapter)
    device = adapter.activate(place.local_rank)
    _host_group = control = _meet(place, adapter.backend) if place.world_size > 1 else None
    try:
        world = World(place.rank, place.world_size, adapter, device, control)
        with adapter.falling_back(fallback) as ledger:
            yield world
        _show_fallbacks(world, ledger)
    finally:
        _host_group = None
        if place.world_size > 1:
            dist.destroy_process_group()


def _show_fallbacks(world: World, ledger: Ledger) -> None:
    """Tell the user what the host computed for the devices of all processes."""
    others = world.all_gather(json.dumps(ledger.to_dict()))
    if not world.is_main:
        return
    for told in others[1:]:
        ledger.join(json.loads(told))
    show_ledger(world.adapter.name, ledger)


def _meet(place: Place, backend: str) -> dist.ProcessGroup:
    """Wait for all processes of the job; a stop signal ends the wait, and the process."""
    check_interfaces()
    where = f"{place.address}, port {place.port}"
    try:
        with mortal(), announced(f"{place} waits for the others at {where}"):
            store = store_of_attempt(place.rank, place.world_size) or store_of_job(place)
            dist.init_process_group(backend, rank=place.rank, world_size=place.world_size, store=store)
            control = dist.new_group(backend="gloo")
    except (dist.DistError, OSError) as error:
        raise could_not_meet(where, error) from error
    assert isinstance(control, dist.ProcessGroup)
    return control
