"""What Paddock needs to know of a kind of device, and the few things it asks of one.

An adapter is a description. What it does goes through `torch.accelerator`, or through the module that torch
keeps for the device type where `torch.accelerator` does not reach: it cannot name a device, and its memory
statistics and synchronisation fail on plug-ins whose allocator or device guard is their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from paddock.devices.config import CompressedFormat, FallbackSetting, ProductsSetting
from paddock.errors import MachineError

if TYPE_CHECKING:
    import torch

    from paddock.devices.fallback import Ledger


class Packed(Protocol):
    """A weight in an order that its device likes better."""

    def multiply(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """What `torch.nn.functional.linear` gives, without gradients."""
        ...

    @property
    def num_bytes(self) -> int:
        """What it takes, beside the weight itself."""
        ...


@dataclass(frozen=True)
class ContainerAccess:
    """What `docker run` or `podman run` has to be told for a container to see devices of the host."""

    every: tuple[str, ...] = ()
    """Device files for each of the devices that are used; {n} is its number."""
    devices: tuple[str, ...] = ()
    """Device files that all of them need."""
    mounts: tuple[str, ...] = ()
    """The driver's files, which must be those of the host: read only, at the same place."""
    docker: tuple[str, ...] = ()
    """Options for docker alone."""
    podman: tuple[str, ...] = ()
    """Options for podman alone."""


@dataclass(frozen=True)
class DeviceAdapter:
    """One kind of accelerator. A vendor's file makes one of these and, as a rule, needs nothing else."""

    name: str
    """What users type: `--device NAME`."""
    package: str | None
    """The package whose import brings the device to torch; None where torch itself brings it."""
    torch_type: str
    backend: str
    """The collective library, as torch.distributed names it."""
    autocast: tuple[str, ...]
    """Types for mixed precision, the preferred one first."""
    float16_needs_loss_scale: bool
    memory_format: Literal["channels_last", "contiguous"]
    """The faster layout for images."""
    parallelism: Literal["full", "data"]
    """`full`: any data × tensor × pipeline layout; `data`: its DTensor is unproven, so data parallel only."""
    float64: bool
    """Whether it computes in double precision, in collectives too."""
    fused_optimizer: bool
    """Whether torch's fused SGD, Adam and AdamW have kernels there."""
    pinned_memory: bool
    """Whether copies from page-locked memory of the host run beside its work."""
    install: str
    """What to install to have it: completes the sentence "it needs …"."""
    visible_devices: str | None = None
    """The environment variable that says which of a machine's devices a process sees, numbered from 0 then."""
    container: ContainerAccess = ContainerAccess()
    """What a container needs to have these devices."""
    kubernetes_resource: str | None = None
    """What a pod asks for, one of it for each device, as the vendor's device plug-in calls it."""
    computes_on_host: bool = False
    """The host's own memory and threads do the work: nothing to copy or to wait for, and our CPU kernels apply."""
    slow_types: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """How slow types are that it has no instructions for: completes "expect it to be …"."""
    peaks: Mapping[str, Mapping[str, float]] = field(default_factory=dict, compare=False, repr=False)
    """Dense peak FLOP/s: pattern of the whole device name → type → FLOP/s. Only published figures."""

    def torch_device(self, local_rank: int) -> torch.device:
        import torch

        return torch.device(self.torch_type, local_rank)

    def activate(self, local_rank: int) -> torch.device:
        """Make the device of this process the current one; gives it, by the number that torch then has for it: a
        plug-in may show every process its own device alone."""
        import torch

        count = self.count()
        if local_rank >= count:
            raise MachineError(
                f"process {local_rank} of this machine has no {self.name} device",
                why=f"{count} found, and each process needs one",
                fix=f"--nproc-per-node {count}, or fewer" if count else "paddock doctor",
            )
        torch.accelerator.set_device_index(local_rank)
        return self.torch_device(torch.accelerator.current_device_index())

    def count(self) -> int:
        """How many devices this process can see."""
        import torch

        current = torch.accelerator.current_accelerator()
        return torch.accelerator.device_count() if current and current.type == self.torch_type else 0

    def device_name(self, index: int | None = None) -> str:
        """The model of a device (the current one, if no index is given), as its vendor spells it."""
        name_of = getattr(self._module(), "get_device_name", None)
        return str(name_of(index)) if name_of else self.torch_type

    def synchronize(self) -> None:
        """Wait for all the work given to the current device."""
        self._module().synchronize()

    def copy_stream(self, device: torch.device) -> torch.Stream | None:
        """A queue of its own for copies to the device, beside what it computes; None where it has one queue only."""
        import torch

        return torch.Stream(device) if self.pinned_memory else None

    def memory_used(self) -> int | None:
        """The most bytes held at once so far by tensors of this process; None if the device cannot say."""
        peak_of = getattr(self._module(), "max_memory_allocated", None)
        return int(peak_of()) if peak_of else None

    def peak_flops(self, dtype: str, device_name: str | None = None) -> float | None:
        """Dense peak FLOP/s of the current device, or of the one named; None where no figure is known."""
        if not self.peaks:
            return None
        if device_name is None:
            if not self.count():
                return None
            device_name = self.device_name()
        for pattern, peaks in self.peaks.items():
            if re.fullmatch(pattern, device_name):
                return peaks.get(dtype)
        return None

    def has_instructions_for(self, dtype: str) -> bool | None:
        """Whether it computes in this type by instructions of its own, rather than by way of another, which is slower
        than float32; None where that cannot be told."""
        return dtype == "float32" or dtype in self.autocast

    def prepare(self) -> None:
        """Tune this process for the device. Called once by a job that computes, never at import."""

    def choose_products(self, setting: ProductsSetting, num_parameters: int, kept: object = None) -> dict[str, Any]:
        """How a model of that size multiplies matrices here, where a device has several ways, in a form that can be
        kept and sent. `kept` is what a run that goes on was begun with."""
        return {}

    def using_products(self, chosen: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Multiply matrices as `choose_products` said, inside."""
        return nullcontext()

    def falling_back(self, setting: FallbackSetting) -> AbstractContextManager[Ledger]:
        """What is done about operators that the device has no kernel for, inside; gives what was done."""
        from paddock.devices import fallback

        return fallback.falling_back(self.name, self.torch_type, setting)

    def pack(self, weight: torch.Tensor, rows: int) -> Packed | None:
        """A copy of a weight that makes products with about so many rows faster; None where none does. It holds as
        long as the weight stays what it is."""
        return None

    def compress(self, weight: torch.Tensor, format: CompressedFormat) -> Packed | None:
        """A weight in fewer bits, in place of the weight; None where the device has no products with such."""
        return None

    def version(self) -> str | None:
        """The version of the vendor's package, or of the toolkit that torch was built with."""
        from importlib import import_module, metadata

        import torch

        if self.package is None:
            return getattr(torch.version, self.torch_type, None)
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return getattr(import_module(self.package), "__version__", None)

    def _module(self) -> Any:
        import torch

        return torch.get_device_module(self.torch_type)
