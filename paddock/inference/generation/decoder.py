"""A model with caches, one forward pass after another: what the generation loop asks of it, whatever the layout.

Passes are launched and their logits asked for later, in the same order: a pipeline's first stages work on one group of
sequences while the last one is busy with another. Alone, a process computes a pass when it is asked for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paddock.models.layers.cache import KeyValueCache
from paddock.models.model import Batch, Model


@dataclass(frozen=True)
class Room:
    """How much a decoder holds: `slots` sequences in each of its groups, of up to `capacity` tokens each (prompt
    included, where the model continues it), which have read up to `source` tokens."""

    slots: int
    capacity: int
    source: int = 0
    groups: int = 1

    def num_bytes(self, model: Model) -> int:
        """What caches of this size take, of the layers that are here."""
        return self.groups * self.slots * KeyValueCache(model, 1, self.capacity, self.source).num_bytes


@dataclass(frozen=True)
class Pass:
    """New tokens for the slots of a group from `first` on; with `sources`, what each of these has read."""

    group: int
    first: int
    tokens: Sequence[Sequence[int]]
    sources: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class Moves:
    """Slots of a group copied over others, (origin, destination), all at once; of what was read, those of `sources`
    alone. Slots from `count` on are empty then."""

    group: int
    count: int
    targets: Sequence[tuple[int, int]] = ()
    sources: Sequence[tuple[int, int]] = ()


class Decoder:
    """A whole model in this process, in evaluation mode."""

    def __init__(self, model: Model, room: Room) -> None:
        self.model, self.room = model, room
        self.reads = model.writes != "tokens"
        """Whether the model reads what it is given before it writes, rather than continuing it."""
        self._device = next(model.parameters()).device
        self._caches = [KeyValueCache(model, room.slots, room.capacity, room.source) for _ in range(room.groups)]
        self._launched: deque[Pass] = deque()

    def launch(self, work: Pass) -> None:
        """Begin a forward pass, if others are to work on it before this process does."""
        self._launched.append(work)

    def logits(self) -> Tensor:
        """Behind the last token of each row, [rows, vocabulary], of the pass that was launched first."""
        return self.compute(self._launched.popleft())

    def move(self, moves: Moves) -> None:
        """Copy slots over others. No pass of their group is launched then."""
        cache = self._caches[moves.group]
        cache.move(moves.targets, moves.sources)
        cache.free(moves.count)

    def compute(self, work: Pass) -> Tensor:
        """The logits of a pass."""
        cache = self._caches[work.group]
        lengths = [len(source) for source in work.sources]
        cache.add([len(tokens) for tokens in work.tokens], work.first, lengths or None)
        batch = {str(self.model.writes): self._tensor(work.tokens, cache.ragged)}
        if work.sources:
            batch |= {"tokens": self._padded(work.sources), "lengths": torch.tensor(lengths, device=self._device)}
        return self.forward(batch, cache).squeeze(1)

    def forward(self, batch: Batch, cache: KeyValueCache) -> Tensor:
        """What the model makes of a batch."""
        outputs: Tensor = self.model(**batch, cache=cache)
        return outputs

    def _tensor(self, rows: Sequence[Sequence[int]], ragged: bool) -> Tensor:
        """[rows, time], or one row behind the other."""
        tokens = [[token for row in rows for token in row]] if ragged else [list(row) for row in rows]
        return torch.tensor(tokens, device=self._device)

    def _padded(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """[rows, the longest's length]: an encoder looks in both directions, and sees by `lengths` what is padding."""
        tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = torch.tensor(row)
        return tokens.to(self._device)
