"""What processes say to each other, collective by collective: alike on every machine."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NAMESPACES = ("c10d", "_c10d_functional")
"""Of operators: what `torch.distributed` calls, and what DTensor does."""


class Collectives(TorchDispatchMode):
    """Notes every collective and message that this process takes part in: its name, and the shapes of the tensors that
    it is given, results too."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in NAMESPACES:
            shapes = [tuple(leaf.shape) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            self.found.append((str(func.overloadpacket).rpartition(".")[2].rstrip("_"), shapes))
        return func(*args, **(kwargs or {}))
