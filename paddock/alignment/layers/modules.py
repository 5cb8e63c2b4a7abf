"""Which module of a model computes just now, on the way forward and on the way back."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils.hooks import RemovableHandle


class ModuleTrace:
    """Follows a model's modules. On the way back it is the module whose forward pass made the node that runs."""

    def __init__(self, model: nn.Module, outside: str = "") -> None:
        """`outside` is what computes where no module does."""
        self._model, self._stack = model, [outside]
        self._behind: str | None = None
        self._owned: dict[Node, str] = {}
        self._handles: list[RemovableHandle] = []

    @property
    def current(self) -> str:
        return self._stack[-1] if self._behind is None else self._behind

    def __enter__(self) -> ModuleTrace:
        for name, module in self._model.named_modules():
            self._handles.append(module.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def assign_rest(self, outputs: Iterable[Tensor]) -> None:
        """What no module made belongs to whatever is outside of them."""
        self._assign(outputs)

    def _enter(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._assign(tensors_of((args, kwargs)))  # what led here was made by whoever calls the module
        self._stack.append(name)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._assign(tensors_of(output))
        self._stack.pop()

    def _assign(self, outputs: Iterable[Tensor]) -> None:
        """Nodes between these tensors and those that belong to somebody are the current module's."""
        owner = self._stack[-1]
        todo = [tensor.grad_fn for tensor in outputs]
        while todo:
            node = todo.pop()
            if node is None or node in self._owned:
                continue
            self._owned[node] = owner
            self._handles.append(node.register_prehook(lambda _, owner=owner: self._arrive(owner)))
            todo += [before for before, _ in node.next_functions]

    def _arrive(self, owner: str) -> None:
        self._behind = owner


def tensors_of(value: Any) -> list[Tensor]:
    """Those in what a module was given, or made."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [one for entry in value.values() for one in tensors_of(entry)]
    if isinstance(value, list | tuple):
        return [one for entry in value for one in tensors_of(entry)]
    return []
