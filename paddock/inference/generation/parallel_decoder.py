"""A model that several processes hold together, writing: one of them leads, the others do what it says.

The leader alone knows requests, chooses tokens and talks to whoever asked; it holds the last stage of a pipeline, so
that logits need not travel. What it tells the others is numbers, over a gloo group on the host, and small: tokens and
slots. Each holds its part of the weights, and caches what its own layers and heads have seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paddock.inference.generation.decoder import Decoder, Moves, Pass, Room
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.packing import packed_weights
from paddock.models.model import Batch, Model
from paddock.parallel.mesh import PIPELINE, Mesh
from paddock.parallel.pipeline.stage import Stage

FIRST_MESSAGE = 512
"""Numbers of a message that are sent at once; a longer one has a second part."""
HEADER = 256
"""Bytes that say which tensors a stage hands on."""


class Replica:
    """The processes that hold one copy of a model, as one of them sees it."""

    def __init__(self, stage: Stage, mesh: Mesh, device: torch.device) -> None:
        """Called by all processes of the job."""
        assert isinstance(stage.model, Model)
        self.stage, self.model, self.mesh, self.device = stage, stage.model, mesh, device
        layout = mesh.layout
        self.leads = mesh.tensor_rank == 0 and mesh.pipeline_rank == layout.pipeline - 1
        assert mesh.grid is not None
        self._group, self._leader = None, -1
        for data in range(layout.data):  # everybody makes all of them, as torch wants it
            ranks = mesh.grid.mesh[:, data].flatten().tolist()
            group = dist.new_group(sorted(ranks), backend="gloo")
            if data == mesh.data_rank:
                self._group, self._leader = group, int(mesh.grid.mesh[-1, data, 0])
        self._sending: list[tuple[Any, Tensor]] = []

    def tell(self, message: list[Any] | None) -> None:
        """Send a message to the others, who hear it when they have done what came before; None: it is over."""
        numbers = _flatten(message)
        first = torch.zeros(FIRST_MESSAGE + 1, dtype=torch.int64)
        first[0] = len(numbers)
        first[1 : len(numbers) + 1] = torch.tensor(numbers[:FIRST_MESSAGE])
        parts = [first]
        if len(numbers) > FIRST_MESSAGE:
            parts.append(torch.tensor(numbers[FIRST_MESSAGE:]))
        for part in parts:
            self._keep(dist.broadcast(part, self._leader, group=self._group, async_op=True), part)

    def hear(self) -> list[Any] | None:
        """The leader's next message."""
        first = torch.zeros(FIRST_MESSAGE + 1, dtype=torch.int64)
        dist.broadcast(first, self._leader, group=self._group)
        length, numbers = int(first[0]), first[1:].tolist()
        if length > FIRST_MESSAGE:
            rest = torch.zeros(length - FIRST_MESSAGE, dtype=torch.int64)
            dist.broadcast(rest, self._leader, group=self._group)
            numbers += rest.tolist()
        return _unflatten(numbers[:length])

    def advance(self, batch: Batch, cache: KeyValueCache) -> Tensor | None:
        """This process's part in a forward pass; the outputs where the last stage is."""
        carry = None if self.mesh.pipeline_rank == 0 else self._receive()
        found = self.stage.advance(carry, batch, cache)
        if isinstance(found, Tensor):
            return found
        self._send({name: tensor for name, tensor in found.items() if name not in self.model.derived})
        return None

    def _send(self, carry: dict[str, Tensor]) -> None:
        group, to = self.mesh.group(PIPELINE), self.mesh.neighbour(1)
        described = {name: (str(tensor.dtype).removeprefix("torch."), *tensor.shape) for name, tensor in carry.items()}
        header = torch.frombuffer(bytearray(json.dumps(described).encode().ljust(HEADER)), dtype=torch.uint8)
        header = header.to(self.device)
        for tensor in (header, *(tensor.contiguous() for tensor in carry.values())):
            self._keep(dist.isend(tensor, to, group=group), tensor)

    def _receive(self) -> dict[str, Tensor]:
        group, source = self.mesh.group(PIPELINE), self.mesh.neighbour(-1)
        header = torch.zeros(HEADER, dtype=torch.uint8, device=self.device)
        dist.recv(header, src=source, group=group)
        described = json.loads(bytes(header.tolist()))
        carry = {}
        for name, (kind, *shape) in described.items():
            carry[name] = torch.empty(shape, dtype=getattr(torch, kind), device=self.device)
            dist.recv(carry[name], src=source, group=group)
        return carry

    def _keep(self, work: Any, tensor: Tensor) -> None:
        """A tensor lives until it is sent."""
        self._sending = [(one, kept) for one, kept in self._sending if not one.is_completed()]
        self._sending.append((work, tensor))

    def wait_until_sent(self) -> None:
        """Wait until everything is sent."""
        for work, _ in self._sending:
            work.wait()
        self._sending = []


class _Part(Decoder):
    """A decoder of this process's part of a model."""

    def __init__(self, replica: Replica, room: Room) -> None:
        super().__init__(replica.model, room)
        self._replica = replica

    def forward(self, batch: Batch, cache: KeyValueCache) -> Tensor:
        found = self._replica.advance(batch, cache)
        return torch.empty(0, 1) if found is None else found


class ParallelDecoder(_Part):
    """The decoder of the process that leads a replica."""

    def __init__(self, replica: Replica, room: Room) -> None:
        super().__init__(replica, room)
        self._moves: list[Moves] = []
        replica.tell([[list(astuple(room))]])

    def launch(self, work: Pass) -> None:
        """The others begin at once."""
        super().launch(work)
        moves = [[[one.group, one.count], _pairs(one.targets), _pairs(one.sources)] for one in self._moves]
        self._moves = []
        self._replica.tell([[[work.group, work.first]], list(work.tokens), list(work.sources), *moves])

    def move(self, moves: Moves) -> None:
        """The others hear of it with the next pass."""
        super().move(moves)
        self._moves.append(moves)


@contextmanager
def leading(replica: Replica) -> Iterator[None]:
    """Inside, the leader makes decoders; behind, the others are free to go."""
    try:
        yield
    finally:
        replica.tell(None)
        replica.wait_until_sent()


@torch.inference_mode()
def follow(replica: Replica) -> None:
    """Do what the leader says, until it is over."""
    message = replica.hear()
    while message is not None:
        ((slots, *sizes),) = message[0]
        with packed_weights(replica.model, slots):
            message = _follow_with(replica, _Part(replica, Room(slots, *sizes)))
    replica.wait_until_sent()


def _follow_with(replica: Replica, part: _Part) -> list[Any] | None:
    """Compute passes until the leader makes another decoder, whose message is returned."""
    while (message := replica.hear()) is not None and len(message) > 1:
        ((group, first),), tokens, sources, *moves = message
        for (of, count), targets, read in moves:
            part.move(Moves(of, count, _paired(targets), _paired(read)))
        part.compute(Pass(group, first, tokens, sources))
    return message


def _pairs(moves: Sequence[tuple[int, int]]) -> list[int]:
    return [slot for pair in moves for slot in pair]


def _paired(slots: list[int]) -> list[tuple[int, int]]:
    return list(zip(slots[::2], slots[1::2], strict=True))


def _flatten(message: list[list[Sequence[int]]] | None) -> list[int]:
    """Lists of lists of numbers as one list of numbers; nothing is none at all."""
    if message is None:
        return []
    numbers = [len(message)]
    for part in message:
        numbers += [len(part), *map(len, part)]
    return [*numbers, *(number for part in message for row in part for number in row)]


def _unflatten(numbers: list[int]) -> list[list[list[int]]] | None:
    """What `_flatten` was given."""
    if not numbers:
        return None
    place, lengths = 1, []
    for _ in range(numbers[0]):
        count = numbers[place]
        lengths.append(numbers[place + 1 : place + 1 + count])
        place += 1 + count
    message = []
    for part in lengths:
        rows = []
        for length in part:
            rows.append(numbers[place : place + length])
            place += length
        message.append(rows)
    return message
