"""What the host reads back from a device: whoever reads waits until the device is through its queue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READING_OPERATORS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "is_nonzero", "equal")
INDEXING_OPERATORS = ("index", "index_put", "index_put_", "_index_put_impl_")
COPYING_OPERATORS = ("_to_copy", "copy_", "_copy_from")


class DeviceReads(TorchDispatchMode):
    """While open, counts the operators that read from a device: a number, a copy, or a shape that depends on values."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()
        self._device_type = device_type

    @property
    def count(self) -> int:
        return self.by_name.total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if self._reads(name, args, kwargs):
            self.by_name[name] += 1
        return func(*args, **kwargs)

    def _reads(self, name: str, args: Any, kwargs: Any) -> bool:
        if name in COPYING_OPERATORS:
            source = args[1] if name == "copy_" else args[0]
            target = args[0].device if name == "copy_" else kwargs.get("device") or args[-1]
            there = getattr(target, "device", target) if isinstance(target, Tensor | torch.device) else source.device
            return self._is_there(source) and there.type != self._device_type
        if name in INDEXING_OPERATORS:
            return self._is_there(args[0]) and looks_for_places(*args)
        return name in READING_OPERATORS and any(self._is_there(leaf) for leaf in tree_leaves(args))

    def _is_there(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value.device.type == self._device_type


def looks_for_places(tensor: Tensor, indices: Any, value: Tensor | None = None, *_: Any) -> bool:
    """Whether an index of booleans has to be turned into places; to put one number there, it has not."""
    masks = any(isinstance(leaf, Tensor) and leaf.dtype == torch.bool for leaf in tree_leaves(indices))
    return masks and (value is None or value.numel() > 1)
