"""Operators that a device has no kernel for: computed by the host instead, and entered in a ledger; or an error.

A plug-in's device lacks some of torch's operators. torch's dispatcher says so with an error, unless something stands in
for what is missing. Here that is a function that copies the operands to the host, computes there, and copies back:
right, and slow, which the ledger shows. Some vendors bring a stand-in of their own, which is then the one asked.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from paddock.devices.config import FallbackSetting
from paddock.errors import MachineError, bad_value

KEY = "PrivateUse1"
"""What torch's dispatcher calls the devices of plug-ins."""
MISSING = re.compile(r"Could not run '([\w:.]+)'")


@dataclass
class Entry:
    """What one operator cost on the host."""

    calls: int = 0
    seconds: float = 0.0


@dataclass
class Ledger:
    """What the host computed for a device, by operator."""

    entries: dict[str, Entry] = field(default_factory=dict)
    by_vendor: bool = False
    """Whether the vendor's own stand-in did it, which nobody here can count."""
    _lock: Any = field(default_factory=threading.Lock, repr=False)  # a backward pass has a thread of its own

    def add(self, operator: str, seconds: float, calls: int = 1) -> None:
        with self._lock:
            entry = self.entries.setdefault(operator, Entry())
            entry.calls += calls
            entry.seconds += seconds

    def to_dict(self) -> dict[str, dict[str, float]]:
        return {operator: asdict(entry) for operator, entry in self.entries.items()}

    def join(self, other: Mapping[str, Mapping[str, float]]) -> None:
        """Enter what another process counted."""
        for operator, entry in other.items():
            self.add(operator, float(entry["seconds"]), int(entry["calls"]))

    def table(self) -> str:
        """A line for every operator, the slowest first."""
        width = max(len("operator"), *map(len, self.entries))
        ordered = sorted(self.entries.items(), key=lambda item: -item[1].seconds)
        rows = [f"{name:<{width}}  {entry.calls:>9,}  {entry.seconds:>9.3f}" for name, entry in ordered]
        return "\n".join([f"{'operator':<{width}}  {'calls':>9}  {'seconds':>9}", *rows])


_stands_in: torch.library.Library | None = None
"""Our registration, while there is one."""
_ledgers: list[Ledger | None] = []
"""Who counts: the innermost; None where it is an error."""


@contextmanager
def falling_back(name: str, torch_type: str, setting: FallbackSetting) -> Iterator[Ledger]:
    """Inside, what the device lacks is computed by the host (`cpu`), or is an error that names the operator."""
    is_plugin = torch._C._get_privateuse1_backend_name() == torch_type
    ledger = Ledger(by_vendor=is_plugin and _stands_in is None and _has_stand_in())
    if ledger.by_vendor and setting == "error":
        raise bad_value(
            "device.fallback",
            setting,
            f"the plug-in of {name} computes what it lacks on the host by itself, and cannot be kept from it",
            "leave it out, and look for the plug-in's own warnings",
        )
    counts = setting == "cpu"
    with _standing_in(ledger if counts else None) if is_plugin and not ledger.by_vendor else nullcontext():
        try:
            yield ledger
        except NotImplementedError as error:
            missing = missing_operator(error)
            if missing is None:
                raise
            raise MachineError(
                f"{name} has no kernel for {missing}",
                why="" if counts else "device.fallback = error: the host does not stand in for it",
                fix="" if counts else "--device.fallback cpu computes it on the host",
            ) from error


def missing_operator(error: BaseException) -> str | None:
    """The operator that a device has no kernel for, if that is what torch's dispatcher says."""
    found = MISSING.search(str(error)) if isinstance(error, NotImplementedError) else None
    return found.group(1) if found else None


def _has_stand_in() -> bool:
    return bool(torch._C._dispatch_has_backend_fallback(torch._C.DispatchKey.PrivateUse1))


@contextmanager
def _standing_in(ledger: Ledger | None) -> Iterator[None]:
    """Count in this ledger inside. torch takes one stand-in at a time: inside another, the same one goes on."""
    global _stands_in
    is_first = _stands_in is None and ledger is not None
    if is_first:
        _stands_in = torch.library.Library("_", "IMPL")
        _stands_in.fallback(_stand_in, KEY)
    _ledgers.append(ledger)
    try:
        yield
    finally:
        _ledgers.pop()
        if is_first and _stands_in is not None:
            _stands_in._destroy()
            _stands_in = None


def _stand_in(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch calls in place of a missing kernel."""
    ledger = _ledgers[-1]
    if ledger is None:
        raise NotImplementedError(f"Could not run '{operator._schema.name}': the device has no kernel for it")
    began = time.perf_counter()
    result = _compute_on_host(operator, args, kwargs)
    ledger.add(str(operator.overloadpacket), time.perf_counter() - began)
    return result


def show_ledger(name: str, ledger: Ledger) -> None:
    """Print what the host computed for a device, if it computed anything."""
    if ledger.entries:
        print(f"{name} has no kernel for these operators; the host computed them:", file=sys.stderr)
        print(ledger.table(), file=sys.stderr, flush=True)


def _compute_on_host(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator by the host's kernel, on copies of what it is given."""
    schema = operator._schema
    if any(one.alias_info is not None and not one.alias_info.is_write for one in schema.returns):
        raise NotImplementedError(f"Could not run '{schema.name}': it describes the device's own memory")
    device = _device_of((*args, *kwargs.values()))
    copies: dict[int, tuple[Tensor, Tensor]] = {}

    def host(value: Any) -> Any:
        if isinstance(value, Tensor):
            return copies.setdefault(id(value), (value, value.to("cpu")))[1]
        if isinstance(value, list | tuple):
            return [host(one) for one in value]
        return torch.device("cpu") if isinstance(value, torch.device) else value

    found = operator(*map(host, args), **{key: host(value) for key, value in kwargs.items()})
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs[argument.name] if argument.name in kwargs else args[place]
            for one in value if isinstance(value, list | tuple) else (value,):
                _write_back(*copies[id(one)])
    given = {id(copy): one for one, copy in copies.values()}

    def back(value: Any) -> Any:
        if isinstance(value, Tensor):
            return given[id(value)] if id(value) in given else value.to(device)
        return type(value)(back(one) for one in value) if isinstance(value, list | tuple) else value

    return back(found)


def _write_back(tensor: Tensor, copy: Tensor) -> None:
    if tensor.shape != copy.shape:
        tensor.resize_(copy.shape)
    tensor.copy_(copy)


def _device_of(values: tuple[Any, ...]) -> torch.device:
    for value in values:
        if isinstance(value, torch.device):
            return value
        if isinstance(value, list | tuple):
            value = next((one for one in value if isinstance(one, Tensor)), None)
        if isinstance(value, Tensor) and value.device.type != "cpu":
            return value.device
    raise NotImplementedError("no operand lies on the device")
