"""A vocabulary cut over tensor-parallel processes: each holds some rows of the head, a softmax needs all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from paddock.parallel.placement import local


@dataclass(frozen=True)
class VocabularyPartition:
    """This process's part of a vocabulary, and how to join it with the others'."""

    size: int
    """Tokens in the whole vocabulary."""
    rank: int
    group: dist.ProcessGroup
    """The processes that hold the parts, of equal size but for the last."""

    @property
    def rows(self) -> int:
        """Tokens in a part, as torch cuts a dimension: the last part may have fewer."""
        return -(-self.size // dist.get_world_size(self.group))

    @property
    def first(self) -> int:
        """The id of the first token here."""
        return self.rank * self.rows

    def local(self, weight: Tensor) -> Tensor:
        """This process's rows of a weight that is cut over the vocabulary."""
        return local(weight)

    def gather_columns(self, scores: Tensor) -> Tensor:
        """The scores of the whole vocabulary, from those of each part: logits are gathered, never the weights."""
        padded = F.pad(scores, (0, self.rows - scores.shape[-1]))
        parts = [torch.empty_like(padded) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, padded.contiguous(), group=self.group)
        return torch.cat(parts, dim=-1)[..., : self.size]

    def join_log_sums(self, here: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials over the whole vocabulary, from that over each part."""
        parts = [torch.empty_like(here) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, here, group=self.group)
        return torch.logsumexp(torch.stack(parts), dim=0)

    def all_reduce_sum(self, here: Tensor) -> Tensor:
        """The sum over the parts, in place."""
        dist.all_reduce(here, group=self.group)
        return here

    def all_reduce_max(self, here: Tensor) -> Tensor:
        """The largest of the parts, in place."""
        dist.all_reduce(here, dist.ReduceOp.MAX, group=self.group)
        return here
