"""Counting what the host reads back from a device: whoever reads waits until the device is through its queue.

    with accelerated():                 # the CPU plays an accelerator: layers take the ways that they take there
        with HostReads() as reads:
            …
        assert reads.count == 0

Tensors of the host and of the device cannot be told apart here, so watch only code that handles the device's.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from paddock.alignment.host_reads import INDEXING_OPERATORS, READING_OPERATORS, looks_for_places
from paddock.devices import adapter_named, registry
from paddock.devices.cpu import CpuAdapter

READING_METHODS = {
    getattr(Tensor, name): name
    for name in ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__")
} | {torch.equal: "equal", torch.allclose: "allclose"}


class HostReads:
    """While open, counts reads by Python (`item`, `tolist`, `bool(tensor)` …) and by operators whose result's shape
    depends on values (`nonzero`, an index of booleans)."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self._stack = ExitStack()

    @property
    def count(self) -> int:
        return self.by_name.total()

    def __enter__(self) -> Self:
        self._stack.enter_context(_Methods(self.by_name))
        self._stack.enter_context(_Operators(self.by_name))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Methods(TorchFunctionMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self._found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READING_METHODS:
            self._found[READING_METHODS[func]] += 1
            with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
                return func(*args, **(kwargs or {}))  # what it does underneath is the same read
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __init__(self, found: Counter[str]) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in READING_OPERATORS or (name in INDEXING_OPERATORS and looks_for_places(*args)):
            self._found[name] += 1
        return func(*args, **(kwargs or {}))


class CountingAdapter(CpuAdapter):
    """The CPU as an accelerator would be described; counts how often it is waited for."""

    waits = 0

    def synchronize(self) -> None:
        type(self).waits += 1


@contextmanager
def accelerated() -> Iterator[CountingAdapter]:
    """The CPU plays an accelerator while this lasts."""
    own = adapter_named("cpu")
    fields = {field.name: getattr(own, field.name) for field in dataclasses.fields(own)}
    adapter = CountingAdapter(**{**fields, "computes_on_host": False})
    CountingAdapter.waits = 0
    registry._BY_TYPE["cpu"] = adapter
    try:
        yield adapter
    finally:
        registry._BY_TYPE["cpu"] = own
