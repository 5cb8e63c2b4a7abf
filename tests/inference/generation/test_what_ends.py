"""A sequence that ends costs those that go on little: its slot is given to one of them, and nothing else moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from paddock.inference.generation.decoder import Decoder, Moves, Room
from paddock.inference.generation.generate import write
from paddock.inference.generation.generator import Generator
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.requests import Request
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.initialization import initialize
from paddock.testing.live_bytes import LiveBytes

CONFIG = GPT2Config(hidden=32, layers=3, heads=4, vocab=61, context=64)
OPTIONS = GenerationOptions(max_new_tokens=12, temperature=0)
SLOTS, CAPACITY = 8, 40
TOKEN = 2 * CONFIG.layers * CONFIG.hidden
"""Numbers that are kept of a token: keys and values of every layer."""


def make_model() -> GPT2:
    model = GPT2(CONFIG).eval()
    initialize(model, seed=1)
    return model


def tensors_of(cache: KeyValueCache) -> list[Tensor]:
    """What a cache holds, found from outside."""
    return [value for stored in vars(cache).values() if isinstance(stored, dict) for value in stored.values()]


def test_a_move_copies_what_is_there_of_one_slot() -> None:
    """Of a cache that is nearly all room, the tokens of the slot that moves."""
    cache = KeyValueCache(make_model(), SLOTS, CAPACITY)
    assert sum(stored.numel() for stored in tensors_of(cache)) == SLOTS * CAPACITY * TOKEN
    for stored in tensors_of(cache):
        stored.copy_(torch.arange(float(stored.numel())).view_as(stored))
    before = [stored.clone() for stored in tensors_of(cache)]
    cache.add([3, 5, 2, 4, 7, 6, 1, 5])
    with LiveBytes() as held:
        cache.move([(7, 2)])
    changed = sum(int((now != then).sum()) for now, then in zip(tensors_of(cache), before, strict=True))
    assert changed == 5 * TOKEN
    assert held.peak <= 3 * 5 * TOKEN * 4, "more than the slot that moves was copied on the way"
    assert cache.lengths == [3, 5, 5, 4, 7, 6, 1, 5]


class Watched(Decoder):
    """Notes what is moved, and how many rows there are then."""

    def __init__(self, model: GPT2, room: Room) -> None:
        super().__init__(model, room)
        self.moved: list[tuple[int, Sequence[tuple[int, int]]]] = []

    def move(self, moves: Moves) -> None:
        super().move(moves)
        self.moved.append((moves.count, moves.targets))


def test_no_more_slots_move_than_sequences_end() -> None:
    """Whoever ends, wherever he lies among the others."""
    decoder = Watched(make_model(), Room(SLOTS, CAPACITY))
    generator = Generator(decoder)
    for number in range(SLOTS):  # those in the first slots end first: all others could be made to move up
        generator.add(Request([number + 1, 9], replace(OPTIONS, max_new_tokens=2 + number // 2)))
    rows, moved = SLOTS, 0
    while generator.busy:
        decoder.moved.clear()
        generator.step()
        ((left, targets),) = decoder.moved
        assert len(targets) <= rows - left, "a sequence moves that could have stayed"
        assert all(origin >= left > destination for origin, destination in targets)
        rows, moved = left, moved + len(targets)
    assert rows == 0 and moved > 1, "none moved: nothing was tested"


def test_others_enter_without_a_move() -> None:
    """As long as somebody waits, he takes the slot of who has ended."""
    decoder = Watched(make_model(), Room(2, CAPACITY))
    write(Generator(decoder), [[number + 1] for number in range(9)], replace(OPTIONS, max_new_tokens=3))
    assert sum(len(targets) for _, targets in decoder.moved) <= 9
