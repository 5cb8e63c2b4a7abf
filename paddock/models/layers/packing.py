"""Weights in the order that their device likes best, while they stay as they are: for writing text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.distributed.tensor import DTensor

from paddock.devices import adapter_of
from paddock.models.layers.basic import Linear
from paddock.models.layers.cross_entropy import VocabularyHead


@contextmanager
def packed_weights(model: nn.Module, rows: int) -> Iterator[None]:
    """Inside, linear layers and heads multiply about `rows` rows by packed copies of their weights, where that is
    faster. Weights must not change inside, and nothing has gradients."""
    layers = [layer for layer in model.modules() if isinstance(layer, Linear)]
    heads = [layer for layer in model.modules() if isinstance(layer, VocabularyHead)]
    try:
        for layer in layers:
            if not isinstance(layer.weight.data, DTensor):  # else it is a part of a weight that is multiplied here
                layer.packed = adapter_of(layer.weight.device).pack(layer.weight, rows)
        for head in heads:
            head.packed_for = rows
        yield
    finally:
        for layer in layers:
            layer.packed = None
        for head in heads:
            head.unpack()
