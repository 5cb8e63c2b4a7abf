"""A head whose vocabulary is cut over processes gives what the whole one does, with smoothed labels too."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from paddock.models.config import IGNORED
from paddock.models.layers.cross_entropy import linear_cross_entropy, linear_target_scores
from paddock.parallel.vocabulary import VocabularyPartition
from paddock.testing.pool import ProcessPool

PoolOf = Callable[[int], ProcessPool]
VOCABULARY = 101
SMOOTHING = 0.15


def score(rank: int) -> list[list[float]]:
    """For a pool: loss, gradients and scores of targets, of this process's part and, without others, of the whole."""
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(12, 6, generator=generator)
    hidden[0] = 1
    hidden.requires_grad_()
    weight = torch.randn(VOCABULARY, 6, generator=generator)
    labels = torch.randint(VOCABULARY, (12,), generator=generator)
    labels[3:6] = IGNORED
    labels[:3] = (hidden[:3] @ weight.T).argmax(-1)
    weight[90] = weight[20] = 8  # alike, in different parts, and the likeliest of the first row
    partition = None
    rows = slice(0, VOCABULARY)
    if dist.is_initialized():
        partition = VocabularyPartition(VOCABULARY, rank, dist.group.WORLD)  # type: ignore[arg-type]
        rows = slice(partition.first, partition.first + partition.rows)
    part = weight[rows].clone().requires_grad_()
    loss = linear_cross_entropy(hidden, part, labels, partition, smoothing=SMOOTHING)
    of_hidden, of_weight = torch.autograd.grad(loss, [hidden, part])
    of_whole = torch.zeros_like(weight)
    of_whole[rows] = of_weight
    if partition is not None:
        dist.all_reduce(of_whole)
    scores = linear_target_scores(hidden, part, labels, partition)
    return [one.flatten().tolist() for one in (loss.detach(), of_hidden, of_whole, scores)]


def test_parts_give_what_the_whole_gives(pool_of: PoolOf) -> None:
    (alone,) = pool_of(1).run(score)
    assert alone[3][1] == 20
    for found in pool_of(2).run(score):
        for values, expected in zip(found, alone, strict=True):
            torch.testing.assert_close(torch.tensor(values), torch.tensor(expected))
