"""What a vendor's package brings to torch beside kernels: the module `torch.NAME`, and what torch asks in C++."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils import backend_registration

from paddock.testing.simulated.device import SimulatedDevice


class DeviceModule:
    """`torch.NAME`, with the functions that vendors have there after the pattern of torch's own."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    # What is there

    def is_available(self) -> bool:
        return self.device_count() > 0

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return self._device.settings.count

    def current_device(self) -> int:
        return 0  # torch lets a device that is written in Python have no other number

    def set_device(self, device: Any) -> None:
        pass

    def get_device_name(self, device: Any = None) -> str:
        return f"simulated {self._device.name}"

    # Its queue

    def synchronize(self, device: Any = None) -> None:
        self._device.waits += 1

    def Stream(self, device: Any = None, priority: int = 0) -> torch.Stream:
        return torch.Stream(self._place(), priority=priority)

    def Event(self, **settings: Any) -> torch.Event:
        return torch.Event(self._place(), **settings)

    def current_stream(self, device: Any = None) -> torch.Stream:
        return torch.accelerator.current_stream(self._place())

    def stream(self, stream: torch.Stream) -> AbstractContextManager[Any]:
        return stream

    # Its memory

    def memory_allocated(self, device: Any = None) -> int:
        return self._device.memory.allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        return self._device.memory.peak

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self._device.memory.peak = self._device.memory.allocated

    def empty_cache(self) -> None:
        pass

    # Its random numbers

    def manual_seed(self, seed: int) -> None:
        self._device.generator.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        self._device.generator.manual_seed(seed)

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return self._device.generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        self._device.generator.set_state(state)

    def _is_in_bad_fork(self) -> bool:
        return False

    # Its types

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [getattr(torch, name) for name in self._device.settings.autocast]

    def is_bf16_supported(self) -> bool:
        return "bfloat16" in self._device.settings.autocast

    def _place(self) -> torch.device:
        return torch.device(self._device.name, 0)


class Hooks(torch._C._acc.PrivateUse1Hooks):
    """What torch asks in C++."""

    def __init__(self, device: SimulatedDevice) -> None:
        super().__init__()
        self._device = device

    def is_available(self) -> bool:
        return self._device.settings.count > 0

    def is_built(self) -> bool:
        return True

    def has_primary_context(self, device_index: int) -> bool:
        return True


def register(device: SimulatedDevice) -> None:
    """Bring the device to torch. A process has one such device, and torch never forgets it."""
    backend_registration._setup_privateuseone_for_python_backend(device.name, DeviceModule(device), Hooks(device))
