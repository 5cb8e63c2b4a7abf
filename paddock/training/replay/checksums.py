"""Checksums of everything that a step's passes compute in this process, in the order in which it is computed.

Tensors are compared bit by bit, and so as whole numbers; their sums stay on the device. What came from other processes
is marked as such: who differs first in something of his own is where an error began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from paddock.parallel.pipeline.stage import Stage
from paddock.parallel.placement import local

Origin = Literal["own", "received", "summed"]
"""Computed here alone; sent by another stage; or summed over processes at the end of the step."""
WHOLE_NUMBERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Entry:
    """One tensor's."""

    name: str
    origin: Origin
    value: Tensor


def checksum(tensor: Tensor) -> Tensor:
    """The sum of a tensor's bits as whole numbers, of the part that is here."""
    here = local(tensor.detach())
    return here.view(WHOLE_NUMBERS[here.dtype.itemsize]).sum(dtype=torch.int64)


class Checksums:
    """While open, notes what modules put out, the gradients of that, and those of weights before they are summed over
    the replicas."""

    def __init__(self, stages: Iterable[Stage], inside: bool) -> None:
        """`inside` says whether to look at the modules in a stage, which compiled ones do not allow."""
        self.entries: list[Entry] = []
        self._stages, self._inside = list(stages), inside
        self._handles: list[Any] = []
        self._seen: dict[int, Tensor] = {}

    def __enter__(self) -> Self:
        for stage in self._stages:
            modules = stage.named_modules() if self._inside else [("", stage)]
            for path, module in modules:
                name = path.removeprefix("model.").removeprefix("model")
                before = self._before_stage if module is stage else self._before(name)
                after = self._after_stage if module is stage else self._after(name)
                # The first of all hooks: those that are there already may sum over the processes that share a tensor.
                self._handles += [
                    module.register_forward_pre_hook(before),
                    module.register_forward_hook(after, prepend=True),
                ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._seen = [], {}

    def note(self, name: str, tensor: Tensor, origin: Origin = "own") -> None:
        self.entries.append(Entry(name, origin, checksum(tensor)))

    def _before_stage(self, stage: nn.Module, carried: Any) -> None:
        for tensor in _tensors(carried):
            self.note("what came from the stage before", tensor, "received")
        self._watch_parameters("", stage)

    def _after_stage(self, stage: nn.Module, carried: Any, output: Any) -> None:
        for tensor in _tensors(output):
            self.note("what the stage puts out", tensor)
            self._watch_gradient("the gradient from the stage behind", tensor, "received")

    def _before(self, name: str) -> Callable[[nn.Module, Any], None]:
        return lambda module, inputs: self._watch_parameters(name, module)

    def _after(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            for tensor in _tensors(output):
                self.note(f"the output of {name}", tensor)
                self._watch_gradient(f"the gradient at the output of {name}", tensor)

        return look

    def _watch_gradient(self, name: str, tensor: Tensor, origin: Origin = "own") -> None:
        if tensor.requires_grad:
            self._handles.append(tensor.register_hook(lambda gradient: self.note(name, gradient, origin)))

    def _watch_parameters(self, path: str, module: nn.Module) -> None:
        """Those that are whole by now: sharded ones are gathered for the unit that uses them."""
        for inner, parameter in module.named_parameters(path):
            if id(parameter) not in self._seen:
                self._seen[id(parameter)] = parameter
                self._watch_gradient(f"the gradient of {inner.removeprefix('model.')}", parameter)


def _tensors(values: Any) -> list[Tensor]:
    found = values if isinstance(values, tuple | list) else values.values() if isinstance(values, dict) else [values]
    return [value for value in found if isinstance(value, Tensor) and value.is_floating_point()]
