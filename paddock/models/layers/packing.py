"""Weights in the order that their device likes best, while they stay as they are: for writing text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from paddock.devices import adapter_of
from paddock.devices.config import CompressedFormat, WeightFormat
from paddock.errors import bad_value
from paddock.models.layers.basic import Linear
from paddock.models.layers.cross_entropy import VocabularyHead


@contextmanager
def packed_weights(model: nn.Module, rows: int) -> Iterator[None]:
    """Inside, linear layers and heads multiply about `rows` rows by packed copies of their weights, where that is
    faster. Weights must not change inside, and nothing has gradients. What is compressed stays so."""
    layers = [layer for layer in _layers(model) if layer.packed is None]
    heads = [head for head in _heads(model) if head.format is None]
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


def set_format(model: nn.Module, format: WeightFormat) -> None:
    """Keep the weights of a model that writes, and is trained no more, in this format from now on. In bfloat16 and int8
    it computes in bfloat16, else in float32."""
    if format in ("bfloat16", "int8"):
        model.to(torch.bfloat16)
    if format == "int8" or format == "int8-dynamic":
        compress_weights(model, format)


def compress_weights(model: nn.Module, format: CompressedFormat) -> None:
    """Keep the weights of linear layers in fewer bits, and a head's copy of them. Embeddings, of which single rows are
    read, stay as they are."""
    for layer in _layers(model):
        weight = layer.weight.detach()
        layer.packed = adapter_of(weight.device).compress(weight, format)
        if layer.packed is None:
            raise bad_value("--format", format, f"a {weight.device.type} has no products with such weights", "bfloat16")
        # As many rows as there are outputs, which the layer is asked for, and no columns: it holds nothing.
        layer.weight = nn.Parameter(weight.new_empty(len(weight), 0), requires_grad=False)
    for head in _heads(model):
        head.format = format


def weight_bytes(model: nn.Module) -> int:
    """What the weights take, as they are kept."""
    packed = [layer.packed for layer in _layers(model)] + [head.packed for head in _heads(model)]
    plain = sum(parameter.nbytes for parameter in model.parameters())
    return plain + sum(one.num_bytes for one in packed if one is not None)


def _layers(model: nn.Module) -> list[Linear]:
    return [layer for layer in model.modules() if isinstance(layer, Linear)]


def _heads(model: nn.Module) -> list[VocabularyHead]:
    return [layer for layer in model.modules() if isinstance(layer, VocabularyHead)]
