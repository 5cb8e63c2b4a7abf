"""Causal attention by the best kernel there is for the case."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from paddock.models.layers.dropout import dropout


def causal_attention(query: Tensor, key: Tensor, value: Tensor, rate: float, training: bool) -> Tensor:
    """Attention of every position to itself and those before it; all are [batch, heads, time, head size].

    The fused kernel does it without holding time × time weights, with dropout too on accelerators. A CPU's has no
    dropout: there the weights are written out, and their dropout is the cheap one.
    """
    if rate == 0.0 or not training or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=rate if training else 0.0)
    later = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).triu(1)
    scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(query.shape[-1]))
    weights = torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
    return dropout(weights, rate, training) @ value
