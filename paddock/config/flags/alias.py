"""What an alias of another system's flag is, and the usual kinds of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """`flags` become what `expand` makes of their value; `means` is what the help shows."""

    flags: tuple[str, ...]
    means: str
    expand: Callable[[str], list[str]]
    takes_value: bool = True
    note: str = ""


def rename(flags: str, field: str, convert: Callable[[str], str] = str) -> Alias:
    """Another name of a field."""
    return Alias(tuple(flags.split()), f"--{field}", lambda value: [f"--{field}", convert(value)])


def switch(flags: str, *expansion: str) -> Alias:
    """A flag without a value."""
    return Alias(tuple(flags.split()), " ".join(expansion), lambda _: list(expansion), takes_value=False)


def keep(flags: str, means: str) -> Alias:
    """A flag that stays as it is until all are known, because it only makes sense together with others."""
    first = flags.split()[0]
    return Alias(tuple(flags.split()), means, lambda value: [first, value])


def no_meaning(flags: str, note: str, takes_value: bool = False) -> Alias:
    """A flag that is accepted, with a word on what happens instead."""
    return Alias(tuple(flags.split()), f"({note})", lambda _: [], takes_value, note)
