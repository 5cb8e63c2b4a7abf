"""Dropout. Accelerators have a fast one; on a CPU, drawing a random number for each element takes a fifth of a
training step. There, one number is drawn as a seed, and a generator that makes four 16-bit numbers from every
nanosecond of work draws the mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.devices import adapter_of

RESOLUTION = 2**16
"""How finely a mask can follow its rate."""


class Dropout(nn.Module):
    """Dropout as a layer, so that whoever cuts a model over processes can tell each which masks are its own."""

    tensor_rank: int | None = None
    """Of the tensor-parallel process that this is, where each holds other activations, and drops others; None where
    all hold the same."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    @property
    def active_rate(self) -> float:
        """Zero in evaluation."""
        return self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate, self.training, self.tensor_rank)

    def extra_repr(self) -> str:
        return f"{self.rate}"


def dropout(x: Tensor, rate: float, training: bool, tensor_rank: int | None = None) -> Tensor:
    """Zero each element with probability `rate` and scale up the rest.

    Processes that hold the same activations draw the same mask; those that hold different parts of them say
    who they are, and draw different ones.
    """
    if rate == 0.0 or not training:
        return x
    if not adapter_of(x.device).computes_on_host:
        with masks_of(tensor_rank, x.device):
            return F.dropout(x, rate)
    return x * random_mask(draw_seed(tensor_rank), list(x.shape), rate) * scale_of_kept(rate)


def draw_seed(tensor_rank: int | None = None) -> Tensor:
    """A seed from torch's generator, so that whoever seeds that generator knows the masks."""
    first = tensor_rank or 0
    return torch.randint(first, first + 2**62, (), dtype=torch.int64)


@contextmanager
def masks_of(tensor_rank: int | None, device: torch.device) -> Iterator[None]:
    """Inside, an accelerator's own generator draws the masks of this rank; outside, all ranks stay in step."""
    if tensor_rank is None:
        yield
        return
    seed = int(draw_seed(tensor_rank))  # before the fork, whose end undoes every draw: the next mask is another one
    with torch.random.fork_rng([device], device_type=device.type):
        torch.manual_seed(seed)
        yield


def scale_of_kept(rate: float) -> float:
    """What the elements that stay are multiplied by, so that the mean stays."""
    return 1.0 / (1.0 - _threshold(rate) / RESOLUTION)


@torch.library.custom_op("paddock::random_mask", mutates_args=())
def random_mask(seed: Tensor, shape: list[int], rate: float) -> Tensor:
    """Zeros with probability `rate`, else ones: a pure function of its arguments.

    As small integers, because a product with them is vectorised where choosing by booleans is not (a tenth the time).
    """
    count = math.prod(shape)
    words = np.random.SFC64(int(seed)).random_raw(-(-count // 4))
    numbers = torch.from_numpy(words.view(np.int16))[:count].view(shape)
    return (numbers >= _threshold(rate) - RESOLUTION // 2).view(torch.int8)


@random_mask.register_fake
def _(seed: Tensor, shape: list[int], rate: float) -> Tensor:
    return torch.empty(shape, dtype=torch.int8)


def _threshold(rate: float) -> int:
    return round(rate * RESOLUTION)
