"""The generation loop: requests are added, stepped and cancelled, and come and go while others are computed.

Every sequence that is being written has a slot of a cache. Those that are active fill the first slots, so that one
forward pass takes them all; when one ends, the last takes its place. Prompts are read in chunks behind them, so that a
long one does not keep the others waiting.
"""

from __future__ import annotations

from collections import deque

import torch

from paddock.inference.generation.beam_search import BeamSearch
from paddock.inference.generation.decoder import Decoder, Moves, Pass
from paddock.inference.generation.next_tokens import Placed, Row, choose_next
from paddock.inference.generation.requests import Event, Request

CHUNK = 1024
"""Tokens of prompts that are read in one pass, at most, where they are continued; a longer one goes on in the next."""
READ_TOKENS = 8192
"""The same where they are read by an encoder, which sees a prompt whole: with its padding, and at least one prompt."""

Waiting = deque[tuple[int, Request]]


class Generator:
    """Writes with a model, as much at once as its decoder has room for.

    A decoder whose processes are a pipeline has several groups of slots: while the last stage finishes a token of one,
    the others work on the next. A request belongs to one group.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._groups = [_Group(number, decoder) for number in range(decoder.room.groups)]
        self._launched: deque[_Group] = deque()  # in the order in which their logits come
        self._waiting: Waiting = deque()
        self._next_id = 0

    def add(self, request: Request) -> int:
        """Put a request behind those that wait; returns its id, which its events bear. One that no slot has room for is
        refused: it would wait for ever, or write over the end of the cache while others are being written."""
        request.check_fits(self._decoder.room, reads=self._decoder.reads)
        self._waiting.append((self._next_id, request))
        self._next_id += 1
        return self._next_id - 1

    def cancel(self, id: int) -> None:
        """Forget a request, whether it waits or is being written."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != id)
        for group in self._groups:
            group.drop(id)

    def end(self, id: int, sequence: int) -> None:
        """Write no more of one sequence of a request: somebody has read enough of it."""
        for group in self._groups:
            group.drop(id, sequence)

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or any(group.used for group in self._groups)

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Write one token of every sequence, those of new requests too as far as there is room."""
        for group in self._groups:
            if group not in self._launched:
                self._launch(group)
        events: list[Event] = []
        for _ in range(len(self._launched)):
            group = self._launched.popleft()
            events += group.finish()
            if len(self._groups) > 1:  # other processes begin with its next token while this one turns to the others
                self._launch(group)
        return events

    def _launch(self, group: _Group) -> None:
        everything = sum(one.used for one in self._groups) + sum(request.width for _, request in self._waiting)
        group.launch(self._waiting, fair=-(-everything // len(self._groups)))
        if group.launched:
            self._launched.append(group)


class _Group:
    """Sequences that are computed together, in slots of one cache."""

    def __init__(self, number: int, decoder: Decoder) -> None:
        self._number, self._decoder = number, decoder
        self._rows: list[Row] = []  # being written, in the first slots
        self._reading: list[Row] = []  # in the slots behind them; a prompt that is not read to its end is the last
        self._passes: list[int] = []  # the rows of each pass that is under way

    @property
    def launched(self) -> bool:
        """Whether its next tokens are being computed."""
        return bool(self._passes)

    @property
    def used(self) -> int:
        """Slots that are taken, or will be when prompts have been read."""
        searches = {row.id: row.request.width for row in self._rows if row.search is not None}
        plain = sum(row.search is None for row in self._rows)
        return sum(searches.values()) + plain + sum(row.request.width for row in self._reading)

    def launch(self, waiting: Waiting, fair: int) -> None:
        """Begin to compute the next token of every row, and of as many waiting requests as there is room for; none
        that makes the group larger than is `fair`, unless it is alone."""
        if self._rows:
            self._begin(Pass(self._number, 0, [row.said[-1:] for row in self._rows]))
        first = len(self._rows)
        if self._decoder.reads:
            self._admit_readers(waiting, fair)
            if self._reading:
                sources = [row.request.prompt for row in self._reading]
                self._begin(Pass(self._number, first, [row.said for row in self._reading], sources))
        elif chunks := self._admit_chunks(waiting, fair):
            self._begin(Pass(self._number, first, chunks))

    def _begin(self, work: Pass) -> None:
        self._passes.append(len(work.tokens))
        self._decoder.launch(work)

    def _next(self, waiting: Waiting, fair: int) -> Row | None:
        """The row of the request that has waited longest, if there is room for all that it becomes. A prompt is read
        once, whatever comes of it: its other rows join behind it."""
        if not waiting:
            return None
        id, request = waiting[0]
        if self.used + request.width > (min(fair, self._decoder.room.slots) if self.used else self._decoder.room.slots):
            return None
        waiting.popleft()
        start = self._decoder.model.config.start_token() if self._decoder.reads else None
        said = list(request.prompt) if start is None else [start]
        search = BeamSearch(request.options, said) if request.options.num_beams > 1 else None
        unread = () if self._decoder.reads else request.prompt
        self._reading.append(Row(id, request, said, unread, search=search))
        return self._reading[-1]

    def _admit_readers(self, waiting: Waiting, fair: int) -> None:
        longest = 0
        while waiting:
            longest = max(longest, len(waiting[0][1].prompt))
            enough = self._reading and longest * (len(self._reading) + 1) > READ_TOKENS
            if enough or self._next(waiting, fair) is None:
                break

    def _admit_chunks(self, waiting: Waiting, fair: int) -> list[list[int]]:
        """What is read next of each prompt: first of the one that was begun."""
        left, chunks = CHUNK, []
        row = self._reading[0] if self._reading else self._next(waiting, fair)
        while row is not None:
            chunks.append(list(row.unread[:left]))
            row.unread = row.unread[left:]
            left -= len(chunks[-1])
            row = self._next(waiting, fair) if left else None
        return chunks

    def finish(self) -> list[Event]:
        """Wait for what was launched, and choose the next token of every row."""
        logits = torch.cat([self._decoder.logits() for _ in self._passes])
        self._passes = []
        everything = [Placed(row, slot) for slot, row in enumerate([*self._rows, *self._reading])]
        wanted = [placed for placed in everything if not placed.row.dropped]
        chosen = choose_next([placed for placed in wanted if not placed.row.unread], logits)
        self._place(chosen.going, [placed for placed in wanted if placed.row.unread])
        return chosen.events

    def drop(self, id: int, sequence: int | None = None) -> None:
        """Write no more of a request, or of one of its sequences."""
        everything = [*self._rows, *self._reading]
        for row in everything:
            row.dropped = row.dropped or (row.id == id and sequence in (None, row.sequence))
        if not self._passes and any(row.dropped for row in everything):
            kept = [Placed(row, slot) for slot, row in enumerate(everything) if not row.dropped]
            written = [placed for placed in kept if placed.slot < len(self._rows)]
            self._place(written, kept[len(written) :])

    def _place(self, going: list[Placed], reading: list[Placed]) -> None:
        """Give the rows that go on the first slots, and the next to one that is being read. Who finds himself in one
        already stays there; each other is copied to where nobody stays."""
        slots: list[Placed | None] = [None] * len(going)
        movers = []
        for placed in going:
            if placed.slot < len(going) and slots[placed.slot] is None:
                slots[placed.slot] = placed
            else:
                movers.append(placed)
        holes = [slot for slot, placed in enumerate(slots) if placed is None]
        for slot, placed in zip(holes, movers, strict=True):
            slots[slot] = placed
        arranged = [placed for placed in slots if placed is not None] + reading
        before = [*self._rows, *self._reading]
        self._rows, self._reading = [p.row for p in arranged[: len(going)]], [p.row for p in reading]
        targets = [(placed.slot, slot) for slot, placed in enumerate(arranged) if placed.slot != slot]
        # What was read stays where a row of the same request lay, since it is the same.
        there = [row.id for row in before]
        sources = [(a, b) for a, b in targets if b >= len(there) or there[b] != there[a]]
        self._decoder.move(Moves(self._number, len(arranged), targets, sources))
