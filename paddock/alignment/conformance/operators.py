"""Every operator that models call, recorded while they run on the host, and played again on a device.

What the device finds is held against the host's in float64. How far off it may be is no constant: it is a few times
what the host itself is off in the operator's own type, or what inputs that are rounded to that type make of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from paddock.alignment.conformance.checks import first_line
from paddock.devices.fallback import missing_operator

Phase = Literal["forward", "backward", "update", "writing"]
MARGIN = 16.0
"""How many times the host's own error a device may have: it adds up in another order, and rounds elsewhere."""
UNDEFINED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_")
"""Operators whose results hold whatever lies in memory."""
RANDOM = ("native_dropout", "dropout")
"""Operators that draw numbers, and do not say so by taking a generator."""


@dataclass(frozen=True)
class Call:
    """An operator with what it was given, on the host."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    phase: Phase

    @property
    def name(self) -> str:
        return str(self.operator.overloadpacket)


@dataclass(frozen=True)
class Finding:
    """What became of a call on the device."""

    operator: str
    missing: bool = False
    error: float = 0.0
    """Relative to the right result."""
    allowed: float = 0.0
    said: str = ""
    """What it raised."""

    @property
    def holds(self) -> bool:
        return not self.missing and not self.said and self.error <= self.allowed

    def __str__(self) -> str:
        if self.missing:
            return f"{self.operator}: no kernel"
        if self.said:
            return f"{self.operator}: {self.said}"
        return f"{self.operator}: off by {self.error:.1e}, {self.allowed:.1e} allowed"


class OperatorRecorder(TorchDispatchMode):
    """While open, keeps one call of each operator with each kind of arguments: their shapes, types and settings."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, Call] = {}
        self.phase: Phase | None = None
        """What is being run; None tells forward from backward passes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        phase = self.phase or ("forward" if torch._C._current_graph_task_id() == -1 else "backward")
        key = (func, phase, _signature(args), _signature(tuple(sorted(kwargs.items()))))
        if key not in self.calls and func.namespace == "aten":
            self.calls[key] = Call(func, _mapped(args, _copy), _mapped(kwargs, _copy), phase)
        return func(*args, **kwargs)

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before


def replay(call: Call, device: torch.device) -> Finding:
    """Run a call on the device, and hold it against the host."""
    try:
        found = _on_device(call, device)
    except Exception as error:  # a vendor's kernel may raise anything
        return Finding(call.name, missing=missing_operator(error) is not None, said=first_line(error))
    found = [tensor.cpu() for tensor in found]
    if any(argument.name == "generator" for argument in call.operator._schema.arguments) or _is(
        call, RANDOM, UNDEFINED
    ):
        return Finding(call.name)  # it is there
    here = _run(call, _copy, None)
    try:
        right = _run(call, _in_double, None)
        moved = _run(call, _moved_by_rounding, None)
    except Exception:  # not every operator takes other types than it was called with
        right, moved = here, here
    worst = Finding(call.name)
    for one, own, exact, shaken in zip(found, here, right, moved, strict=True):
        finding = _compared(call.name, one, own, exact, shaken)
        if finding.said or finding.error / (finding.allowed or 1.0) >= worst.error / (worst.allowed or 1.0):
            worst = finding
    return worst


def _on_device(call: Call, device: torch.device) -> list[Tensor]:
    """What a call gives there; one of a backward pass is made in one, on the thread that the device has for them."""
    run = partial(_run, call, lambda tensor: tensor.to(device, copy=True), device)
    if call.phase != "backward":
        return run()
    results: list[Tensor] = []
    number = torch.ones((), device=device, requires_grad=True)
    _InBackwardPass.apply(number, lambda: results.extend(run())).backward()
    return results


class _InBackwardPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, number: Tensor, run: Callable[[], None]) -> Tensor:
        ctx.run = run
        return number.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.run()
        return gradients[0], None


def _compared(name: str, found: Tensor, here: Tensor, right: Tensor, shaken: Tensor) -> Finding:
    """`here` is the host's result in the operator's own type, `right` in float64, `shaken` from inputs that differ by
    their rounding."""
    if found.shape != here.shape or found.dtype != here.dtype:
        kinds = [f"{one.dtype} {list(one.shape)}" for one in (found, here)]
        return Finding(name, said=f"its result is {kinds[0]}, and not {kinds[1]}")
    if not found.is_floating_point():
        return Finding(name, error=float((found != here).sum()))
    size = float(right.double().norm())
    own, moved = (_distance(one, right, size) for one in (here, shaken))
    return Finding(name, error=_distance(found, right, size), allowed=MARGIN * max(own, moved, _eps(found.dtype)))


def _distance(found: Tensor, right: Tensor, size: float) -> float:
    """The norm of what is between them, relative to the right one's; infinities must be the same."""
    found, right = found.double(), right.double()
    finite = right.isfinite() & found.isfinite()
    odd = ~finite & (found != right) & ~(found.isnan() & right.isnan())
    if bool(odd.any()):
        return float("inf")
    return float((found - right)[finite].norm()) / (size if 0 < size < float("inf") else 1.0)


def _run(call: Call, convert: Callable[[Tensor], Tensor], device: torch.device | None) -> list[Tensor]:
    """A call with its tensors converted; gives its results, and what it wrote to. Results are the host's to read."""

    def change(value: Any) -> Any:
        if isinstance(value, Tensor):
            return convert(value)
        if isinstance(value, torch.device) and device is not None:
            return device
        wide = convert in (_in_double, _moved_by_rounding)
        return torch.float64 if wide and value is torch.float32 else value

    args, kwargs = _mapped(call.args, change), _mapped(call.kwargs, change)
    found = call.operator(*args, **kwargs)
    results = [*_tensors(found)]
    for place, argument in enumerate(call.operator._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = kwargs[argument.name] if argument.name in kwargs else args[place] if place < len(args) else None
            results += _tensors(given)
    if isinstance(found, bool | int | float):
        results.append(torch.tensor(found))
    return results


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _in_double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def _moved_by_rounding(tensor: Tensor) -> Tensor:
    """Each number a little larger or smaller, by as much as its type rounds."""
    if not tensor.is_floating_point():
        return tensor.clone()
    signs = torch.randint(0, 2, tensor.shape, generator=torch.Generator().manual_seed(0)).mul_(2).sub_(1)
    return tensor.double() * (1.0 + _eps(tensor.dtype) / 2 * signs)


def _eps(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(one, change) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(one, change) for one in value)
    return change(value) if not (change is _copy and not isinstance(value, Tensor)) else value


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [leaf for one in value for leaf in _tensors(one)] if isinstance(value, list | tuple) else []


def _signature(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (tuple(value.shape), value.dtype, tuple(value.stride()))
    return tuple(_signature(one) for one in value) if isinstance(value, list | tuple) else str(value)


def _is(call: Call, *names: Sequence[str]) -> bool:
    return any(call.operator.overloadpacket.__name__ in some for some in names)
