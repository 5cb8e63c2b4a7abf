"""The bytes of tensors that a piece of work holds at its height, counted tensor by tensor: alike on every machine."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, UntypedStorage, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Watches every storage that an operation makes until it is freed, or made empty as FSDP does. What was there
    before does not count, nor does what only stands for tensors elsewhere (a DTensor has no memory of its own)."""

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, weakref.ref[UntypedStorage]] = {}
        self._before: set[int] = set()
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._before |= {storage._cdata for storage in _storages((args, kwargs))} - self._storages.keys()
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in self._before:
                self._storages[storage._cdata] = weakref.ref(storage)
        self.peak = max(self.peak, self.now())
        return result

    def now(self) -> int:
        """Bytes held at this moment."""
        alive = {key: storage for key, reference in self._storages.items() if (storage := reference()) is not None}
        self._storages = {key: self._storages[key] for key in alive}
        return sum(storage.nbytes() for storage in alive.values())


def _storages(values: Any) -> list[UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(values) if type(leaf) in (Tensor, nn.Parameter)]
