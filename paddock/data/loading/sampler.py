"""Which samples make up a step or a batch, and a shuffled order of them.

The position in the data is one number, the same for every layout. The order is computed instead of stored, so it takes
no memory, whatever its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from paddock.data.config import LENGTH_MULTIPLE

ROUNDS, ROUNDS_OF_FEW = 6, 12
"""Few numbers need more rounds until every order is as likely as any other."""
FEW = 10_000
MASK = 2**64 - 1


@dataclass(frozen=True)
class Sampler:
    """Cuts an endless row of samples into global batches, and a rank's part of each into microbatches."""

    micro: int
    accumulation: int
    data_size: int
    data_rank: int

    @property
    def batch(self) -> int:
        return self.micro * self.accumulation * self.data_size

    def step(self, position: int) -> list[range]:
        """This process's micro-batches of the step that begins at sample `position`."""
        starts = (
            position + (index * self.data_size + self.data_rank) * self.micro for index in range(self.accumulation)
        )
        return [range(start, start + self.micro) for start in starts]


def evaluation_batches(count: int, data_size: int, data_rank: int, micro: int) -> list[range]:
    """The batches of one data-parallel rank out of `count` evaluation samples: each sample on exactly one rank."""
    first, last = count * data_rank // data_size, count * (data_rank + 1) // data_size
    return [range(start, min(start + micro, last)) for start in range(first, last, micro)]


def by_length(lengths: Sequence[int], size: int) -> list[list[int]]:
    """The numbers of rows in batches of `size`, rows of like length together, the longest first."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    return [order[first : first + size] for first in range(0, len(order), size)]


def by_tokens(lengths: Sequence[int], most: int) -> list[list[int]]:
    """The same in batches of at most `most` tokens each, filled up to their longest row, or of a single row."""
    order = [number for batch in by_length(lengths, max(1, len(lengths))) for number in batch]
    batches: list[list[int]] = []
    first = 0
    while first < len(order):
        longest = -(-lengths[order[first]] // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        batches.append(order[first : first + max(1, most // longest)])
        first += len(batches[-1])
    return batches


class Shuffle:
    """The numbers 0…count-1 in an order that depends on `key` only.

    A Feistel network over numbers written as (left, right): each round adds a hash of one part to the other, which
    can be undone, so no two numbers meet. The two parts span little more than the wanted range; what falls outside
    goes round again until it falls inside.
    """

    def __init__(self, count: int, *key: int) -> None:
        self.count = count
        self._width = isqrt(max(0, count - 1)) + 1
        self._height = -(-count // self._width)
        rounds = ROUNDS if count > FEW else ROUNDS_OF_FEW
        keys: list[int] = np.random.SeedSequence(key).generate_state(rounds, np.uint64).tolist()
        self._rounds = list(zip(keys[::2], keys[1::2], strict=True))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError(index)
        while True:
            left, right = divmod(index, self._width)
            for one, other in self._rounds:
                left = (left + _mix(right ^ one)) % self._height
                right = (right + _mix(left ^ other)) % self._width
            index = left * self._width + right
            if index < self.count:
                return index


def _mix(number: int) -> int:
    """Every bit of the result depends on every bit of the number."""
    number = number * 0x9E3779B97F4A7C15 & MASK
    number = (number ^ number >> 32) * 0xD6E8FEB86659FD93 & MASK
    return number ^ number >> 32
