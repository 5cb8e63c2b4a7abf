"""A vocabulary cut over processes: each holds some rows of the head, and a softmax needs all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class VocabularyShards:
    """This process's part of a vocabulary, and how to join it with the others'."""

    first: int
    """The id of the first token here."""
    group: dist.ProcessGroup
    """The processes that hold the parts."""

    def part_here(self, weight: Tensor) -> Tensor:
        """This process's rows of a weight that is cut over the vocabulary."""
        return weight.to_local() if isinstance(weight, DTensor) else weight

    def whole(self, weight: Tensor) -> Tensor:
        """All rows of a weight that is cut over the vocabulary."""
        return weight.full_tensor() if isinstance(weight, DTensor) else weight

    def join_log_sums(self, here: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials over the whole vocabulary, from that over each part."""
        parts = [torch.empty_like(here) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, here, group=self.group)
        return torch.logsumexp(torch.stack(parts), dim=0)

    def add(self, here: Tensor) -> Tensor:
        """The sum over the parts, in place."""
        dist.all_reduce(here, group=self.group)
        return here
