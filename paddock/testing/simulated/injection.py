"""Numerical errors made on purpose: which operator is wrong, in which module, by how much, in which direction.

An operator knows nothing of modules. In a forward pass the modules that are being called are kept in a stack, by hooks
that torch calls for every module. In a backward pass nobody is called: but every node of autograd's graph was numbered
when the forward pass made it, so that the number of the node at work tells which module's it is.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

Direction = Literal["forward", "backward"]
REMEMBERED = 1_000_000
"""Calls of modules whose nodes may still go backward."""


@dataclass(frozen=True)
class Injection:
    """An operator of the device that computes wrong numbers."""

    operator: str
    """As torch prints it, such as `aten.mm`, in all its overloads."""
    module: str | None = None
    """In this module and what it holds (`layers.1.attention`); None is wherever the operator is called."""
    size: float = 1e-3
    """The norm of the error relative to that of the right result."""
    direction: Direction = "forward"
    only: int | None = None
    """Of its calls there, counted from 1, this one alone: an error that comes once. None is every one."""

    def is_at(self, place: Place) -> bool:
        if self.direction != place.direction:
            return False
        return self.module is None or f".{self.module}." in f".{place.module}."


@dataclass(frozen=True)
class Place:
    """Where an operator is called."""

    direction: Direction
    module: str


class Injections:
    """The wrong operators of a device."""

    def __init__(self, injections: Sequence[Injection]) -> None:
        self._by_operator: dict[str, list[Injection]] = {}
        for injection in injections:
            self._by_operator.setdefault(injection.operator, []).append(injection)
        self._calls: Counter[Injection] = Counter()
        self.applied = 0
        """How many results were changed."""

    def apply(self, operator: str, results: Sequence[Any]) -> None:
        """Change the first result that is there, in place, where the operator is wrong. The same call always gets the
        same error: every number is made larger or smaller by the same part, at places that the seed chooses."""
        here = self._by_operator.get(operator)
        wrong = [one for one in here if one.is_at(current_place())] if here else []
        result = next((one for one in results if isinstance(one, Tensor) and one.is_floating_point()), None)
        if not wrong or result is None or result.numel() == 0:
            return
        for injection in wrong:
            self._calls[injection] += 1
            if injection.only not in (None, self._calls[injection]):
                continue
            signs = _signs(injection, result)
            result.copy_(result * (1.0 + injection.size * signs).to(torch.promote_types(result.dtype, torch.float32)))
            self.applied += 1


def _signs(injection: Injection, like: Tensor) -> Tensor:
    label = f"{injection.operator}/{injection.module}/{tuple(like.shape)}"
    seed = int.from_bytes(hashlib.sha256(label.encode()).digest()[:7], "little")
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, like.shape, generator=generator, device="cpu").mul_(2).sub_(1).double()


# Which module is at work

_names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
"""The path of every module of a model that was named, or called."""
_here = threading.local()
_begins: list[int] = []
"""From which number on the nodes of autograd's graph belong to the module beside it."""
_modules: list[str] = []


def name_modules(model: nn.Module) -> None:
    """Tell the paths of a model's modules: one that is called by itself does not know where it belongs."""
    for path, module in model.named_modules():
        _names[module] = path


def current_place() -> Place:
    """The module at work, and in which direction."""
    stack = _stack()
    if stack:  # in a backward pass too, where a module is run again because its activations were not kept
        return Place("forward", stack[-1])
    if torch._C._current_graph_task_id() == -1:
        return Place("forward", "")
    node = torch._C._current_autograd_node()
    if node is None:
        return Place("backward", "")
    at = bisect_right(_begins, node._sequence_nr()) - 1
    return Place("backward", _modules[at] if at >= 0 else "")


@contextmanager
def watching_modules() -> Iterator[None]:
    """Inside, the module at work is known."""
    hooks = [register_module_forward_pre_hook(_enter), register_module_forward_hook(_leave, always_call=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        _begins.clear()
        _modules.clear()


def _stack() -> list[str]:
    if not hasattr(_here, "stack"):
        _here.stack = []
    found: list[str] = _here.stack
    return found


def _enter(module: nn.Module, inputs: Any) -> None:
    if module not in _names:
        name_modules(module)
    _stack().append(_names[module])
    _note()


def _leave(module: nn.Module, inputs: Any, output: Any) -> None:
    if _stack():
        _stack().pop()
    _note()


def _note() -> None:
    """The nodes that are made from now on belong to the module on top."""
    if torch._C._current_graph_task_id() != -1:
        return  # made again for what was not kept: gradients go through the nodes of the first time
    if len(_begins) >= REMEMBERED:
        del _begins[: REMEMBERED // 2], _modules[: REMEMBERED // 2]
    stack = _stack()
    _begins.append(torch._C._autograd._get_sequence_nr())
    _modules.append(stack[-1] if stack else "")
