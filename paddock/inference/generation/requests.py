"""What is asked of a generator, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.errors import ConfigError
from paddock.inference.generation.decoder import Room
from paddock.inference.generation.options import GenerationOptions


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

    def check_fits(self, room: Room, *, reads: bool) -> None:
        """Raise a ConfigError if no slot has room for it, where the model `reads` its prompt or continues it."""
        length, new = len(self.prompt), self.options.max_new_tokens
        if not length:
            raise ConfigError("the prompt is empty", why="the model begins from at least one token")
        if self.width > room.slots:
            raise ConfigError(
                f"the request writes {self.width} sequences at once",
                why=f"the generator has {room.slots} slots, and each takes one",
                fix=f"ask for at most {room.slots} beams or sequences, or make a generator with {self.width} slots",
            )
        if reads and length > room.source:
            raise ConfigError(
                f"the prompt has {length} tokens",
                why=f"a slot of the generator has room for {room.source} that were read",
                fix=f"shorten it to at most {room.source} tokens, or make a generator with source {length}",
            )
        # The last token that is written is not read again; the one that a decoder begins with is.
        before = 0 if reads else length - 1
        if before + new > room.capacity:
            raise ConfigError(
                f"max_new_tokens {new}" + ("" if reads else f" behind a prompt of {length}"),
                why=f"needs room for {before + new} tokens, and a slot of the generator has {room.capacity}",
                fix=f"make them {before + new - room.capacity} fewer, or a generator with capacity {before + new}",
            )


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
