"""The next token of every sequence that is being written, from the logits of all: samples, and beams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from paddock.errors import NumericsError
from paddock.inference.generation.beam_search import BeamSearch
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.requests import Event, Request, TokenLogprobs
from paddock.inference.generation.sampling import choose, restrain
from paddock.parallel.seeds import seed_for


@dataclass
class Row:
    """A sequence that is being written: a sample, or a beam."""

    id: int
    request: Request
    said: list[int]
    """What counts as said when nothing may be repeated; its last token is the next to be computed."""
    unread: Sequence[int] = ()
    """What the model has not seen yet of a prompt that it continues."""
    sequence: int = 0
    written: int = 0
    generator: torch.Generator | None = None
    search: BeamSearch | None = None
    dropped: bool = False
    """Whether nobody wants to know how it goes on."""


@dataclass(frozen=True)
class Placed:
    """A row, and the slot with what was computed of it."""

    row: Row
    slot: int


@dataclass
class Chosen:
    """What there is to tell, and the rows that go on, each from what is in a slot."""

    events: list[Event] = field(default_factory=list)
    going: list[Placed] = field(default_factory=list)


def choose_next(rows: Sequence[Placed], logits: Tensor) -> Chosen:
    """The next token of every row, given the logits of each slot's last; a new request's first row becomes all that it
    asked for."""
    _check_finite(logits)
    chosen = Chosen()
    alike: dict[GenerationOptions, list[Placed]] = {}
    beams: dict[int, list[Placed]] = {}
    for placed in rows:
        if placed.row.search is not None:
            beams.setdefault(placed.row.id, []).append(placed)
        else:
            alike.setdefault(placed.row.request.options, []).extend(_copies(placed))
    for options, some in alike.items():
        _sample(logits, options, some, chosen)
    for some in beams.values():
        _search(logits, sorted(some, key=lambda placed: placed.row.sequence), chosen)
    return chosen


def _copies(placed: Placed) -> list[Placed]:
    """The row itself; or, of a prompt that was just read, one for every sample that is wanted."""
    row, options = placed.row, placed.row.request.options
    if row.written:
        return [placed]
    copies = range(options.num_return_sequences)
    generators = [_generator(options, row.request.number, copy) for copy in copies]
    return [
        Placed(replace(row, said=list(row.said), sequence=copy, generator=generators[copy]), placed.slot)
        for copy in copies
    ]


def _generator(options: GenerationOptions, number: int, copy: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed_for(options.seed, "generate", number, copy))


def _sample(logits: Tensor, options: GenerationOptions, rows: list[Placed], chosen: Chosen) -> None:
    """One token for each row, all of which have the same options."""
    slots = torch.tensor([placed.slot for placed in rows], device=logits.device)
    logits = logits.index_select(0, slots)
    own = logits.to("cpu", torch.float32).log_softmax(dim=-1) if options.logprobs is not None else None
    restrain(logits, [placed.row.said for placed in rows], [placed.row.written for placed in rows], options)
    tokens = choose(logits, options, [placed.row.generator for placed in rows if placed.row.generator is not None])
    for number, (placed, token) in enumerate(zip(rows, tokens.tolist(), strict=True)):
        row = placed.row
        stops = token == options.stop_token
        row.said.append(token)
        row.written += 1
        ended = stops or row.written == options.max_new_tokens
        told = None if own is None or stops else _logprobs(own[number], token, options.logprobs or 0)
        chosen.events.append(Event(row.id, row.sequence, () if stops else (token,), ended, told))
        if not ended:
            chosen.going.append(placed)


def _logprobs(row: Tensor, token: int, top: int) -> TokenLogprobs:
    found = row.topk(top)
    likeliest = tuple(zip(found.indices.tolist(), found.values.tolist(), strict=True))
    return TokenLogprobs(row[token].item(), likeliest)


def _search(logits: Tensor, beams: list[Placed], chosen: Chosen) -> None:
    """The next token of every beam of one request."""
    first = beams[0].row
    assert first.search is not None
    going = first.search.advance(logits[[placed.slot for placed in beams]])
    for beam, (parent, token) in enumerate(going):
        row = Row(first.id, first.request, [token], sequence=beam, search=first.search)
        chosen.going.append(Placed(row, beams[parent].slot))
    if not going:
        best = enumerate(first.search.best())
        chosen.events += [Event(first.id, number, found.tokens, ended=True) for number, found in best]


def _check_finite(logits: Tensor) -> None:
    # What is no number becomes the smallest and the largest. To ask every score by itself takes ten times as long, and
    # other processes wait for the next token meanwhile.
    if not bool(torch.stack(torch.aminmax(logits)).isfinite().all()):
        raise NumericsError(
            "the model's logits are not finite",
            why="its weights are broken, or the precision is too low for them",
            fix="generate in float32; if that fails too, the checkpoint is damaged",
        )
