"""Which samples make up a step. The position in the data is one number, the same for every layout."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampler:
    """Cuts the endless row of samples into global batches, and a process's share of each into micro-batches."""

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


def share(count: int, data_size: int, data_rank: int, micro: int) -> list[range]:
    """This process's share of `count` evaluation samples: each sample on exactly one process, none left out."""
    first, last = count * data_rank // data_size, count * (data_rank + 1) // data_size
    return [range(start, min(start + micro, last)) for start in range(first, last, micro)]
