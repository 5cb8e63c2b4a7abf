"""Is a device here? Looks, and always says why not."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from paddock.devices.adapter import DeviceAdapter
from paddock.process import machine_lacks


@dataclass(frozen=True)
class Availability:
    """What was found of one kind of device."""

    available: bool
    count: int = 0
    version: str | None = None
    reason: str = ""
    """Why it is not available; empty if it is."""
    names: tuple[str, ...] = ()
    broken: bool = False
    """Its software is installed and fails: something to repair, unlike a device that is simply not here."""


def probe(adapter: DeviceAdapter, *, names: bool = True) -> Availability:
    """Import what the device needs and count what is there; raises only where memory runs out, of which no device
    is the cause.

    Asking for a device's name may open a context on it, which holds device memory as long as the process
    lives; a process that only launches others passes `names=False`.
    """
    package = adapter.package
    try:
        if package and find_spec(package) is None:
            return Availability(False, reason=f"{package} is not installed")
        if package:
            import_module(package)
        count, version = adapter.count(), adapter.version()
        if not count:
            return Availability(False, version=version, reason=_why_none(adapter))
        found = tuple(adapter.device_name(index) for index in range(count)) if names else ()
        return Availability(True, count, version, names=found)
    except (Exception, SystemExit) as error:  # a vendor's package may do anything on import
        if (lacking := machine_lacks(error)) is not None:
            raise lacking from error
        what = f"{package} is installed but failed" if package else "torch failed"
        first_line = (str(error).strip() or "no message").splitlines()[0]
        return Availability(False, reason=f"{what}: {type(error).__name__}: {first_line}", broken=True)


def _why_none(adapter: DeviceAdapter) -> str:
    import torch

    current = torch.accelerator.current_accelerator()
    if current is not None and current.type == adapter.torch_type:
        return f"no {adapter.name} device is visible to this process: check the driver"
    if current is not None:
        return f"torch drives one kind of accelerator in a process, and here it is {current.type}"
    if adapter.package:
        return f"{adapter.package} was imported but gave torch no device"
    return f"this torch ({torch.__version__}) was built without {adapter.name}"
