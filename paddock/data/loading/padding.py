"""Rows of tokens of different lengths, as one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

MULTIPLE = 8
"""Lengths of batches are multiples of this, so that few of them differ and tensor processes can share them."""


def pad_rows(samples: Sequence[Mapping[str, Any]], pad: int, longest: int) -> dict[str, Tensor]:
    """`tokens` and `token_types` [batch, time] filled up, and the `lengths` [batch] that hold text.

    Time is the `length` that samples ask for or, where they ask for none, that of the longest row.
    """
    lengths = [len(sample["tokens"]) for sample in samples]
    time = samples[0]["length"] or min(-(-max(lengths) // MULTIPLE) * MULTIPLE, longest)
    tokens = np.full((len(samples), time), pad, dtype=np.int64)
    token_types = np.zeros_like(tokens)
    for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        tokens[row, :length] = sample["tokens"]
        token_types[row, :length] = sample["token_types"]
    columns = {"tokens": tokens, "token_types": token_types, "lengths": np.array(lengths)}
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def by_length(lengths: Sequence[int], size: int) -> list[list[int]]:
    """The numbers of rows in batches of `size`, rows of like length together, the longest first."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    return [order[first : first + size] for first in range(0, len(order), size)]
