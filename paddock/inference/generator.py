"""The generation loop: requests are added, stepped and cancelled, and come and go while others are computed.

Every sequence that is being written has a slot of the cache. Those that are active fill the first slots, so that one
forward pass takes them all; when one ends, the last takes its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from paddock.errors import ConfigError, NumericsError
from paddock.inference.beam_search import BeamSearch
from paddock.inference.options import GenerationOptions
from paddock.inference.sampling import choose, restrain
from paddock.models.layers.cache import KeyValueCache
from paddock.models.model import Model
from paddock.parallel.seeds import seed_for

PREFILL_TOKENS = 8192
"""Tokens of prompts, with their padding, that are read in one pass."""


@dataclass(frozen=True)
class Request:
    """A prompt (for an encoder-decoder model: what it reads), and what is wanted of it."""

    prompt: Sequence[int]
    options: GenerationOptions
    number: int = 0
    """What its random numbers depend on, besides the seed."""

    @property
    def width(self) -> int:
        """Sequences that are written at once."""
        return max(self.options.num_beams, self.options.num_return_sequences)


@dataclass(frozen=True)
class TokenLogprobs:
    """How likely the model finds a token that was chosen, and which it finds likeliest."""

    chosen: float
    likeliest: tuple[tuple[int, float], ...]
    """Tokens and their log probabilities, the likeliest first."""


@dataclass(frozen=True)
class Event:
    """New tokens of a sequence of a request; the last ones if it has `ended`."""

    request: int
    sequence: int
    tokens: tuple[int, ...]
    ended: bool = False
    logprobs: TokenLogprobs | None = None
    """Of its one token, where they are asked for."""


@dataclass
class _Row:
    """A sequence that is being written: a sample, or a beam."""

    id: int
    request: Request
    said: list[int]
    """What counts as said when nothing may be repeated; its last token is the next to be computed."""
    sequence: int = 0
    written: int = 0
    generator: torch.Generator | None = None
    search: BeamSearch | None = None


@dataclass(frozen=True)
class _Next:
    """A row that goes on, from what is in a slot."""

    row: _Row
    slot: int


@dataclass
class _Chosen:
    events: list[Event] = field(default_factory=list)
    going: list[_Next] = field(default_factory=list)


class Generator:
    """Writes with a model that is in evaluation mode: `slots` sequences at once, of up to `capacity` tokens each
    (prompt included, where the model continues it), which have read up to `source` tokens."""

    def __init__(self, model: Model, slots: int, capacity: int, source: int = 0) -> None:
        self._model, self._slots, self._capacity, self._source = model, slots, capacity, source
        self._device = next(model.parameters()).device
        self._cache = KeyValueCache(model, slots, capacity, source)
        self._reads = model.writes != "tokens"
        self._waiting: deque[tuple[int, Request]] = deque()
        self._rows: list[_Row] = []
        self._next_id = 0

    def add(self, request: Request) -> int:
        """Put a request behind those that wait; returns its id, which its events bear. One that no slot has room for is
        refused: it would wait for ever, or write over the end of the cache while others are being written."""
        self._check_fits(request)
        self._waiting.append((self._next_id, request))
        self._next_id += 1
        return self._next_id - 1

    def _check_fits(self, request: Request) -> None:
        length, new, width = len(request.prompt), request.options.max_new_tokens, request.width
        if not length:
            raise ConfigError("the prompt is empty", why="the model begins from at least one token")
        if width > self._slots:
            raise ConfigError(
                f"the request writes {width} sequences at once",
                why=f"the generator has {self._slots} slots, and each takes one",
                fix=f"ask for at most {self._slots} beams or sequences, or make a generator with {width} slots",
            )
        if self._reads and length > self._source:
            raise ConfigError(
                f"the prompt has {length} tokens",
                why=f"a slot of the generator has room for {self._source} that were read",
                fix=f"shorten it to at most {self._source} tokens, or make a generator with source {length}",
            )
        # The last token that is written is not read again; the one that a decoder begins with is.
        before = 0 if self._reads else length - 1
        if before + new > self._capacity:
            raise ConfigError(
                f"max_new_tokens {new}" + ("" if self._reads else f" behind a prompt of {length}"),
                why=f"needs room for {before + new} tokens, and a slot of the generator has {self._capacity}",
                fix=f"make them {before + new - self._capacity} fewer, or a generator with capacity {before + new}",
            )

    def cancel(self, id: int) -> None:
        """Forget a request, whether it waits or is being written."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] != id)
        self._place([_Next(row, slot) for slot, row in enumerate(self._rows) if row.id != id])

    def end(self, id: int, sequence: int) -> None:
        """Write no more of one sequence of a request: somebody has read enough of it."""
        gone = (id, sequence)
        self._place([_Next(row, slot) for slot, row in enumerate(self._rows) if (row.id, row.sequence) != gone])

    @property
    def busy(self) -> bool:
        return bool(self._rows or self._waiting)

    @torch.inference_mode()
    def step(self) -> list[Event]:
        """Write one token of every sequence, those of new requests too as far as there is room."""
        logits = [self._decode()] if self._rows else []
        admitted = self._admit()
        if admitted:
            logits.append(self._read(admitted))
        together = torch.cat(logits)
        _check_finite(together)
        chosen = self._choose(together)
        self._place(chosen.going)
        return chosen.events

    # Forward passes

    def _decode(self) -> Tensor:
        """Logits behind the last token of every active row."""
        tokens = torch.tensor([[row.said[-1]] for row in self._rows], device=self._device)
        self._cache.add([1] * len(self._rows))
        return self._forward(**{str(self._model.writes): tokens})

    def _admit(self) -> list[_Row]:
        """Take in the requests that there is room for, in their order. A prompt is read once, whatever comes of it:
        its other rows join behind it."""
        taken: list[_Row] = []
        searches = {row.id: row.request.options.num_beams for row in self._rows if row.search is not None}
        room = self._slots - sum(searches.values()) - sum(row.search is None for row in self._rows)
        longest = 0
        while self._waiting:
            id, request = self._waiting[0]
            longest = max(longest, len(request.prompt))
            if request.width > room or (taken and longest * (len(taken) + 1) > PREFILL_TOKENS):
                break
            self._waiting.popleft()
            room -= request.width
            taken.append(self._first_row(id, request))
        return taken

    def _first_row(self, id: int, request: Request) -> _Row:
        start = self._model.config.start_token()
        said = [start] if self._reads and start is not None else list(request.prompt)
        search = BeamSearch(request.options, said) if request.options.num_beams > 1 else None
        return _Row(id, request, said, search=search)

    def _read(self, rows: list[_Row]) -> Tensor:
        """Read the prompts of new rows, into the slots behind the active ones; returns the logits behind each."""
        prompts = [row.request.prompt for row in rows]
        lengths = [len(prompt) for prompt in prompts]
        tokens = torch.zeros(len(rows), max(lengths), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = torch.tensor(prompt)
        tokens, first = tokens.to(self._device), len(self._rows)
        self._rows = [*self._rows, *rows]
        if not self._reads:
            self._cache.add(lengths, first)
            return self._forward(tokens=tokens)
        begun = torch.tensor([[row.said[-1]] for row in rows], device=self._device)
        self._cache.add([1] * len(rows), first, sources=lengths)
        return self._forward(tokens=tokens, lengths=torch.tensor(lengths, device=self._device), decoder_tokens=begun)

    def _forward(self, **batch: Tensor) -> Tensor:
        logits: Tensor = self._model(**batch, cache=self._cache)
        return logits.squeeze(1)

    # Choosing

    def _choose(self, logits: Tensor) -> _Chosen:
        """The next token of every row; a new request's first row becomes all that it asked for."""
        chosen = _Chosen()
        alike: dict[GenerationOptions, list[_Next]] = {}
        beams: dict[int, list[int]] = {}
        for slot, row in enumerate(self._rows):
            if row.search is not None:
                beams.setdefault(row.id, []).append(slot)
            else:
                alike.setdefault(row.request.options, []).extend(_copies(row, slot))
        for options, rows in alike.items():
            _sample(logits, options, rows, chosen)
        for slots in beams.values():
            self._search(logits, sorted(slots, key=lambda slot: self._rows[slot].sequence), chosen)
        return chosen

    def _search(self, logits: Tensor, slots: list[int], chosen: _Chosen) -> None:
        first = self._rows[slots[0]]
        search = first.search
        assert search is not None
        going = search.advance(logits[slots])
        for beam, (parent, token) in enumerate(going):
            row = _Row(first.id, first.request, [token], sequence=beam, search=search)
            chosen.going.append(_Next(row, slots[parent]))
        if not going:
            chosen.events += [
                Event(first.id, number, found.tokens, ended=True) for number, found in enumerate(search.best())
            ]

    # Slots

    def _place(self, going: list[_Next]) -> None:
        """Give the rows that go on the first slots. Who finds himself in one already stays there; each other is copied
        to where nobody stays."""
        placed: list[_Row | None] = [None] * len(going)
        movers = []
        for entry in going:
            if entry.slot < len(going) and placed[entry.slot] is None:
                placed[entry.slot] = entry.row
            else:
                movers.append(entry)
        holes = [slot for slot, row in enumerate(placed) if row is None]
        for slot, entry in zip(holes, movers, strict=True):
            placed[slot] = entry.row
        self._copy([entry.slot for entry in movers], holes)
        self._rows = [row for row in placed if row is not None]
        self._cache.free(len(going))

    def _copy(self, origins: list[int], destinations: list[int]) -> None:
        """Copy slots; what was read stays where a row of the same request lay, since it is the same."""
        moves = list(zip(origins, destinations, strict=True))
        others = [
            (origin, destination)
            for origin, destination in moves
            if destination >= len(self._rows) or self._rows[destination].id != self._rows[origin].id
        ]
        self._cache.move(moves, others)


def _copies(row: _Row, slot: int) -> list[_Next]:
    """The row itself; or, of a prompt that was just read, one for every sample that is wanted."""
    if row.written:
        return [_Next(row, slot)]
    options, number = row.request.options, row.request.number
    return [
        _Next(replace(row, said=list(row.said), sequence=copy, generator=_generator(options, number, copy)), slot)
        for copy in range(options.num_return_sequences)
    ]


def _generator(options: GenerationOptions, number: int, copy: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_for(options.seed, "generate", number, copy))


def _sample(logits: Tensor, options: GenerationOptions, rows: list[_Next], chosen: _Chosen) -> None:
    """One token for each row, all of which have the same options."""
    logits = logits[[entry.slot for entry in rows]]
    own = logits.to("cpu", torch.float32).log_softmax(dim=-1) if options.logprobs is not None else None
    restrain(logits, [entry.row.said for entry in rows], [entry.row.written for entry in rows], options)
    tokens = choose(logits, options, [entry.row.generator for entry in rows if entry.row.generator is not None])
    for number, (entry, token) in enumerate(zip(rows, tokens.tolist(), strict=True)):
        row = entry.row
        stops = token == options.stop_token
        row.said.append(token)
        row.written += 1
        ended = stops or row.written == options.max_new_tokens
        told = None if own is None or stops else _logprobs(own[number], token, options.logprobs or 0)
        chosen.events.append(Event(row.id, row.sequence, () if stops else (token,), ended, told))
        if not ended:
            chosen.going.append(entry)


def _logprobs(row: Tensor, token: int, top: int) -> TokenLogprobs:
    found = row.topk(min(top, len(row)))
    likeliest = tuple(zip(found.indices.tolist(), found.values.tolist(), strict=True))
    return TokenLogprobs(row[token].item(), likeliest)


def _check_finite(logits: Tensor) -> None:
    if not bool(logits.isfinite().all()):
        raise NumericsError(
            "the model's logits are not finite",
            why="its weights are broken, or the precision is too low for them",
            fix="generate in float32; if that fails too, the checkpoint is damaged",
        )
