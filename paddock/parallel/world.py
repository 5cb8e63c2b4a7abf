"""The processes of a job as one of them sees it: who am I, how many are we, and a few agreements."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from paddock.devices import DeviceAdapter, prepare
from paddock.parallel.attempts import store_of_attempt


@dataclass(frozen=True)
class World:
    """This process among all. With one process there is no process group, and agreements cost nothing."""

    rank: int
    size: int
    adapter: DeviceAdapter
    device: torch.device

    @property
    def speaks(self) -> bool:
        """Whether this is the one process that writes the run directory and talks to the user."""
        return self.rank == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """Sum small numbers over all processes, in double precision where the device has it."""
        if self.size == 1:
            return list(values)
        dtype = torch.float64 if self.device.type == "cpu" else torch.float32
        tensor = torch.tensor(values, dtype=dtype, device=self.device)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor.tolist()]

    def share(self, value: str) -> str:
        """What rank 0 says, on every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def gather(self, value: str) -> list[str]:
        """What every rank says, on every rank."""
        if self.size == 1:
            return [value]
        values = [""] * self.size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for everyone."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def join_world(adapter: DeviceAdapter) -> Iterator[World]:
    """Join the processes that the launcher (or torchrun) started with this one; leave them at the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    prepare(adapter)
    adapter.activate(local_rank)
    device = adapter.torch_device(local_rank)
    if size > 1:
        store = store_of_attempt(rank, size)
        dist.init_process_group(adapter.backend, rank=rank, world_size=size, store=store)
    try:
        yield World(rank, size, adapter, device)
    finally:
        if size > 1:
            dist.destroy_process_group()
