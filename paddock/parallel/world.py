"""The processes of a job as one of them sees it: who am I, how many are we, and a few agreements.

What ranks agree on in words and small numbers (whether to stop, how much work a step is) goes over a gloo group of its
own, on the host: the device, which is busy with the step before, is not asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from paddock.devices import DeviceAdapter, prepare
from paddock.parallel.attempts import store_of_attempt


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
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def all_gather(self, value: str) -> list[str]:
        """What every rank says, on every rank."""
        if self.size == 1:
            return [value]
        values = [""] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def barrier(self) -> None:
        """Wait for everyone."""
        if self.size > 1:
            dist.barrier(group=self.control)


@contextmanager
def join_world(adapter: DeviceAdapter) -> Iterator[World]:
    """Join the processes that the launcher (or torchrun) started with this one; leave them at the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    prepare(adapter)
    adapter.activate(local_rank)
    device = adapter.torch_device(local_rank)
    control = None
    if size > 1:
        store = store_of_attempt(rank, size)
        dist.init_process_group(adapter.backend, rank=rank, world_size=size, store=store)
        control = dist.new_group(backend="gloo")
    try:
        yield World(rank, size, adapter, device, control)
    finally:
        if size > 1:
            dist.destroy_process_group()
