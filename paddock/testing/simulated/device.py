"""A device that does not exist, as this process has it: its settings, what it counted, and its rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paddock.testing.simulated.injection import Injection, Injections
from paddock.testing.simulated.memory import MEMORY, to_device


@dataclass(frozen=True)
class Settings:
    """What a simulated device is like."""

    lacks: tuple[str, ...] = ()
    """Operators that it has no kernel for, such as `aten.gelu`."""
    injections: tuple[Injection, ...] = ()
    """Operators that compute wrong numbers."""
    float64: bool = True
    """Whether it has double precision: without it, no tensor of that type can lie there."""
    autocast: tuple[str, ...] = ("bfloat16", "float16")
    """The types for mixed precision, the preferred one first."""
    broken_collectives: tuple[str, ...] = ()
    """Collectives that give wrong sums or move wrong numbers, such as `allreduce`."""
    nondeterministic: float = 0.0
    """What numbers of a sum or a product differ by, at most and relative to themselves, from one time to the next, as
    where many additions to one place come in any order."""
    count: int = 8
    """How many devices a machine has: each process of a job takes one."""


class SimulatedDevice:
    """The device of this process, and what the host did with it."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.generator = torch.Generator()
        self.memory = MEMORY
        self.change(settings)

    def change(self, settings: Settings) -> None:
        """Be another device from now on, and count from zero."""
        self.settings = settings
        self.injections = Injections(settings.injections) if settings.injections else None
        self._chance = torch.Generator().manual_seed(0)
        self.host_reads: Counter[str] = Counter()
        """Reads of the device by the host, by operator: each waits until the device is through its queue."""
        self.collectives: Counter[str] = Counter()
        """What its library was asked for, by kind: `broadcast`, `allreduce SUM`."""
        self.waits = 0
        """How often the host waited for all of the device's work."""

    def owns(self, tensor: Tensor) -> bool:
        return tensor.device.type == self.name

    def place(self, result: Any) -> Any:
        """What the host computed, on the device."""
        if isinstance(result, Tensor):
            self._check_type(result.dtype)
            return to_device(result)
        return [self.place(one) for one in result] if isinstance(result, list) else result

    def disturb(self, results: Sequence[Any]) -> None:
        """Change sums, in place, by what their order makes of them this time."""
        for result in results:
            if isinstance(result, Tensor) and result.is_floating_point():
                kind = torch.promote_types(result.dtype, torch.float32)
                noise = torch.empty(result.shape, dtype=kind, device="cpu")
                size = self.settings.nondeterministic
                result.copy_(result * (1.0 + noise.uniform_(-size, size, generator=self._chance)))

    def generator_for(self, given: torch.Generator | None) -> torch.Generator:
        if given is not None:
            raise RuntimeError(f"expected a {self.name} generator, and found one of {given.device}")
        return self.generator

    def check_place(self, operator: str, arguments: Any, anywhere: bool) -> None:
        """An error, if an operator is given a tensor of the host; a single number may lie anywhere."""
        if anywhere:
            return
        for argument in arguments:
            for one in argument if isinstance(argument, list | tuple) else (argument,):
                if isinstance(one, Tensor) and one.dim() > 0 and not self.owns(one):
                    raise RuntimeError(
                        f"expected all tensors to be on the same device, but {operator} was given one on {one.device} "
                        f"beside {self.name}"
                    )

    def _check_type(self, dtype: torch.dtype) -> None:
        if not self.settings.float64 and dtype in (torch.float64, torch.complex128):
            raise RuntimeError(f"a {self.name} has no {dtype}")
