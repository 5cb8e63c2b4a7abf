"""Keys and values of the tokens that a model has already seen, so that generation computes each token once.

Every sequence has a slot, and a length of its own. A forward pass adds tokens to slots that lie side by side; sequences
that end leave their slot to another, which is copied there, and nothing else moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Piece:
    """A row's new tokens among those of all rows."""

    where: slice
    start: int
    """How many the row had before."""
    mask: Tensor | None
    """Which keys each of them sees, [time, keys]; None where each sees those up to itself."""


class KeyValueCache:
    """Slots with room for `capacity` tokens each, and for `source` tokens that were read where the model has an
    encoder, in every attention layer that is here: a pipeline stage, or a process that holds some of the heads, caches
    what it has.

    What a layer caches is its attribute `caches`: "target", which grows token by token, or "source", which is there
    from the first pass on.
    """

    def __init__(self, model: nn.Module, slots: int, capacity: int, source: int = 0) -> None:
        self.lengths = [0] * slots
        """Tokens in each slot."""
        self.source_lengths = [0] * slots
        self._stored: dict[nn.Module, Tensor] = {}  # [2, slots, heads, capacity or source, head size]
        for layer in model.modules():
            kind = getattr(layer, "caches", None)
            if kind is not None:
                heads, size, like = layer.cached_shape()  # type: ignore[operator]
                shape = (2, slots, heads, capacity if kind == "target" else source, size)
                # Zeros, because what is not seen is multiplied by nothing, and what is no number stays none.
                self._stored[layer] = torch.zeros(shape, dtype=like.dtype, device=like.device)

    @property
    def num_bytes(self) -> int:
        return sum(stored.nbytes for stored in self._stored.values())

    def add(self, counts: Sequence[int], first: int = 0, sources: Sequence[int] | None = None) -> None:
        """Say what the next forward pass brings: row r adds `counts[r]` tokens to slot `first + r`; with `sources`, it
        has read so many tokens before. Rows that add equally many come as [rows, time]; others one behind the other,
        as [1, all tokens], so that there is no padding."""
        rows = slice(first, first + len(counts))
        self._rows, self._counts, self._starts = rows, list(counts), self.lengths[rows]
        self.ragged = len(set(counts)) > 1
        self.lengths[rows] = [start + count for start, count in zip(self._starts, counts, strict=True)]
        if sources is not None:
            self.source_lengths[rows] = list(sources)
        self._masks: dict[str, Tensor | None] = {}
        self._pieces: list[Piece] = []

    def move(self, moves: Sequence[tuple[int, int]], sources: Sequence[tuple[int, int]] | None = None) -> None:
        """Copy slots over others, (origin, destination), all at once; of what was read, only that of `sources`."""
        sources = moves if sources is None else sources
        for layer, stored in self._stored.items():
            target = layer.caches == "target"
            pairs, lengths = (moves, self.lengths) if target else (sources, self.source_lengths)
            if pairs:
                origins, destinations = map(list, zip(*pairs, strict=True))
                length = max(lengths[slot] for slot in origins)
                stored[:, destinations, :, :length] = stored[:, origins, :, :length]
        for pairs, lengths in ((moves, self.lengths), (sources, self.source_lengths)):
            found = [lengths[origin] for origin, _ in pairs]
            for (_, destination), length in zip(pairs, found, strict=True):
                lengths[destination] = length

    def free(self, first: int) -> None:
        """Empty this slot and all behind it."""
        self.lengths[first:] = [0] * len(self.lengths[first:])

    # Inside a forward pass, on what `add` said

    def positions(self, device: torch.device) -> Tensor:
        """Where the new tokens stand: [rows, time], or [1, time] where that is the same for all."""
        if self.ragged:
            runs = [torch.arange(start, start + count) for start, count in zip(self._starts, self._counts, strict=True)]
            return torch.cat(runs).unsqueeze(0).to(device)
        starts = self._starts[:1] if self._even else self._starts
        new = torch.arange(self._counts[0], device=device)
        return torch.tensor(starts, device=device).unsqueeze(1) + new

    def extend(self, layer: nn.Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values ([rows, heads, time, head size]) and return all so far."""
        stored, time = self._stored[layer][:, self._rows], keys.shape[2]
        if self._even:
            start = self._starts[0]
            stored[0, :, :, start : start + time], stored[1, :, :, start : start + time] = keys, values
        elif time == 1:
            rows, places = torch.arange(len(keys), device=keys.device), self.positions(keys.device)[:, 0]
            stored[0][rows, :, places], stored[1][rows, :, places] = keys[:, :, 0], values[:, :, 0]
        else:
            for row, start in enumerate(self._starts):
                stored[0, row, :, start : start + time] = keys[row]
                stored[1, row, :, start : start + time] = values[row]
        keys, values = stored[:, :, :, : self.longest]
        return keys, values

    def extend_pieces(self, layer: nn.Module, keys: Tensor, values: Tensor) -> Iterator[tuple[Piece, Tensor, Tensor]]:
        """Store a layer's new keys and values, which came one row behind the other ([1, heads, all tokens, head size]),
        and return for each row where its tokens are, and all of its keys and values so far."""
        stored = self._stored[layer][:, self._rows]
        for row, piece in enumerate(self.pieces(keys.device)):
            end = piece.start + piece.where.stop - piece.where.start
            stored[0, row, :, piece.start : end] = keys[0, :, piece.where]
            stored[1, row, :, piece.start : end] = values[0, :, piece.where]
            yield piece, stored[0, row : row + 1, :, :end], stored[1, row : row + 1, :, :end]

    def pieces(self, device: torch.device) -> list[Piece]:
        """The rows of tokens that come one row behind the other."""
        if not self._pieces:
            ends = list(accumulate(self._counts))
            self._pieces = [
                Piece(slice(end - count, end), start, _seen(start, count, device))
                for start, count, end in zip(self._starts, self._counts, ends, strict=True)
            ]
        return self._pieces

    @property
    def longest(self) -> int:
        """How many keys there are for the row that has most."""
        return max(self.lengths[self._rows])

    @property
    def begins(self) -> bool:
        """Whether nothing was there before, so that new tokens see each other alone."""
        return not any(self._starts)

    def mask(self, device: torch.device) -> Tensor | None:
        """Which of the keys so far each new token sees, [rows or 1, 1, time, keys]; None where that is all of them."""
        if "target" not in self._masks:
            alone = self._even and self._counts[0] == 1
            places = torch.arange(self.longest, device=device)
            seen = None if alone else (places <= self.positions(device).unsqueeze(-1)).unsqueeze(1)
            self._masks["target"] = seen
        return self._masks["target"]

    def remember(self, layer: nn.Module, keys: Tensor, values: Tensor) -> None:
        """Store the keys and values of what was read."""
        stored = self._stored[layer][:, self._rows, :, : keys.shape[2]]
        stored[0], stored[1] = keys, values

    def recall(self, layer: nn.Module) -> tuple[Tensor, Tensor]:
        """What `remember` stored."""
        keys, values = self._stored[layer][:, self._rows, :, : max(self.source_lengths[self._rows])]
        return keys, values

    def source_mask(self, device: torch.device) -> Tensor | None:
        """Which of the keys that were read are there, [rows, 1, 1, keys]; None where that is all of them."""
        if "source" not in self._masks:
            lengths = self.source_lengths[self._rows]
            places = torch.arange(max(lengths), device=device)
            there = None if len(set(lengths)) == 1 else places < torch.tensor(lengths, device=device).unsqueeze(1)
            self._masks["source"] = None if there is None else there[:, None, None]
        return self._masks["source"]

    def last(self, x: Tensor) -> Tensor:
        """Of what is computed of the new tokens, [rows, time, …], that of each row's last one: [rows, 1, …]."""
        if not self.ragged:
            return x[:, -1:]
        ends = torch.tensor(list(accumulate(self._counts)), device=x.device) - 1
        return x[0, ends].unsqueeze(1)

    @property
    def _even(self) -> bool:
        """Whether every row goes on from the same length."""
        return len(set(self._starts)) == 1


def _seen(start: int, count: int, device: torch.device) -> Tensor | None:
    """Which of the keys so far each of the new tokens sees; None if nothing was there before."""
    return torch.ones(count, start + count, dtype=torch.bool, device=device).tril(start) if start else None
