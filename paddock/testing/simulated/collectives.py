"""The collective library of the device, under its vendor's name: gloo, on the same memory.

It moves tensors of the device alone, as a vendor's library does: one of the host is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paddock.testing.simulated.device import SimulatedDevice
from paddock.testing.simulated.memory import on_host

PLAIN = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "allgather_coalesced", "gather"),
    *("scatter", "reduce_scatter", "alltoall", "send", "recv", "recv_anysource"),
)
"""Collectives that gloo knows under the name that torch calls a process group by."""
SINGLE = {
    "all_gather_single": "_allgather_base",
    "_allgather_base": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "all_to_all_single": "alltoall_base",
    "alltoall_base": "alltoall_base",
}
"""Those of one tensor in parts: what a process group is asked for, and what gloo calls it."""
SEVERAL = {
    "all_gather_single_coalesced": "_allgather_base",
    "allgather_into_tensor_coalesced": "_allgather_base",
    "reduce_scatter_single_coalesced": "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
}
"""Several of those at once."""

OPERATIONS = tuple(dist.ReduceOp.RedOpType.__members__.values())
REDUCES = (dist.ReduceOp, dist.ReduceOp.RedOpType)


class DeviceProcessGroup(dist.ProcessGroup):
    """A process group of the device's own library."""

    def __init__(self, device: SimulatedDevice, library: str, store: Any, rank: int, size: int, timeout: Any) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._device, self._library = device, library
        self._gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout=timeout or timedelta(minutes=30))

    def getBackendName(self) -> str:
        return self._library

    @property
    def group_name(self) -> Any:
        """torch asks C++ for it, which does not ask back."""
        return self._name

    @property
    def _device_types(self) -> list[torch.device]:
        """Where objects are put that torch sends as tensors."""
        return [torch.device(self._device.name)]

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        pass

    def barrier(self, opts: Any = None) -> Any:
        self._device.collectives["barrier"] += 1
        return self._gloo.barrier() if opts is None else self._gloo.barrier(opts)

    def shutdown(self) -> None:
        self._gloo.shutdown()

    def abort(self) -> None:
        self._gloo.abort()

    def _move(self, name: str, gloo_name: str, arguments: Any, outputs: Any) -> Any:
        self._device.collectives[_kind(name, arguments)] += 1
        work = getattr(self._gloo, gloo_name)(*map(self._host, arguments))
        broken = name in self._device.settings.broken_collectives
        return _Broken(work, _leaves(self._host(outputs))) if broken else work

    def _host(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._host(one) for one in value]
        if not isinstance(value, Tensor):
            return value
        if not self._device.owns(value):
            raise RuntimeError(
                f"{self._library} moves tensors of {self._device.name}, and this one is on {value.device}"
            )
        return on_host(value)


class _Broken(dist.Work):
    """A collective that, when it is waited for, has moved a wrong number."""

    def __init__(self, work: Any, outputs: list[Tensor]) -> None:
        super().__init__()
        self._work, self._outputs = work, outputs

    def wait(self, timeout: Any = None) -> bool:
        self._work.wait()
        for tensor in self._outputs:
            tensor.view(-1)[:1] += 1
        self._outputs = []
        return True


def _plain(name: str) -> Callable[..., Any]:
    def run(group: DeviceProcessGroup, *arguments: Any) -> Any:
        return group._move(name, name, arguments, arguments[0])

    return run


def _single(name: str, gloo_name: str) -> Callable[..., Any]:
    def run(group: DeviceProcessGroup, *arguments: Any) -> Any:
        return group._move(gloo_name, gloo_name, arguments, arguments[0])

    return run


def _several(name: str, gloo_name: str) -> Callable[..., Any]:
    def run(group: DeviceProcessGroup, outputs: list[Tensor], inputs: list[Tensor], *options: Any) -> Any:
        pairs = zip(outputs, inputs, strict=True)
        works = [group._move(gloo_name, gloo_name, (output, part, *options), output) for output, part in pairs]
        for work in works[:-1]:
            work.wait()
        return works[-1]

    return run


for _name in PLAIN:
    setattr(DeviceProcessGroup, _name, _plain(_name))
for _name, _gloo_name in SINGLE.items():
    setattr(DeviceProcessGroup, _name, _single(_name, _gloo_name))
for _name, _gloo_name in SEVERAL.items():
    setattr(DeviceProcessGroup, _name, _several(_name, _gloo_name))


def _kind(name: str, arguments: Any) -> str:
    """A collective, what it makes of several numbers, if it makes one, and their type: `allreduce SUM float32`."""
    given = [getattr(one, "reduceOp", one) for one in arguments]
    made = [one for one in OPERATIONS if any(isinstance(what, REDUCES) and what == one for what in given)]
    types = dict.fromkeys(
        str(one.dtype).removeprefix("torch.") for one in _leaves(arguments) if isinstance(one, Tensor)
    )
    return " ".join([name, *(one.name for one in made), *types])


def _leaves(value: Any) -> list[Tensor]:
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list | tuple) else [value]


def register(device: SimulatedDevice, library: str) -> None:
    """Let torch find the library by its name."""

    def create(store: Any, rank: int, size: int, timeout: Any) -> DeviceProcessGroup:
        return DeviceProcessGroup(device, library, store, rank, size, timeout)

    if library not in dist.Backend.backend_list:
        dist.Backend.register_backend(library, create, devices=[device.name])
