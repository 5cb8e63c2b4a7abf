"""Causal attention by the best kernel there is for the case."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from paddock.models.layers.dropout import dropout

BLOCKS = 4
"""Queries are taken in this many blocks, each against only the keys that it may see: 5/8 of the work of all."""

SMALLEST_BLOCK = 64


def causal_attention(query: Tensor, key: Tensor, value: Tensor, rate: float, training: bool) -> Tensor:
    """Attention of every position to itself and those before it; all are [batch, heads, time, head size].

    The fused kernel does it without holding time × time weights, with dropout too on accelerators. A CPU's has no
    dropout: there the weights are written out, and their dropout is the cheap one.
    """
    if rate == 0.0 or not training or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=rate if training else 0.0)
    time = query.shape[2]
    size = max(SMALLEST_BLOCK, -(-time // BLOCKS))
    parts = []
    for start in range(0, time, size):
        stop = min(time, start + size)
        part = query[:, :, start:stop], key[:, :, :stop], value[:, :, :stop]
        parts.append(_attention_of_last(*part, rate, training))
    return torch.cat(parts, dim=2)


def _attention_of_last(query: Tensor, key: Tensor, value: Tensor, rate: float, training: bool) -> Tensor:
    """Attention of the last positions (as many as there are queries) to all positions up to their own."""
    later = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
    later = later.triu(1 + key.shape[2] - query.shape[2])
    scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(query.shape[-1]))
    weights = torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
    return dropout(weights, rate, training) @ value
