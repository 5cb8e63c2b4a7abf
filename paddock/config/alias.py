"""What a flag of another system can become here: another name, a switch, a word on what happens instead, or an error
that says why it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddock.errors import ConfigError, bad_value

Expansion = Callable[[str], list[str]]


@dataclass(frozen=True)
class Alias:
    """`flags` become what `expand` makes of their value; `means` is what the help shows."""

    flags: tuple[str, ...]
    means: str
    expand: Expansion
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


@dataclass(frozen=True)
class System:
    """A system that users come from, with its flags, and the families that they are for; none is all."""

    name: str
    aliases: list[Alias]
    families: tuple[str, ...] = ()
    takes_folder: bool = False
    """Whether a word that belongs to no flag is the folder of the data."""


def built_in(flags: str, allowed: str, note: str) -> Alias:
    """A choice that is made here once and for all: one of the words of `allowed` is as it is, any other is an error."""
    name, words = flags.split()[0], allowed.split()

    def expand(value: str) -> list[str]:
        if value not in words:
            raise bad_value(name, value, note, f"{' or '.join(words)}, or leave it out")
        return []

    return Alias(tuple(flags.split()), f"({note}: {' or '.join(words)})", expand, note="")


def impossible(flags: str, why: str, fix: str, takes_value: bool = False) -> Alias:
    """A flag that would make another model or another training of it than there is here."""
    name = flags.split()[0]

    def expand(value: str) -> list[str]:
        raise ConfigError(f"{name} has nothing here that it could mean", why=why, fix=fix)

    return Alias(tuple(flags.split()), f"not here: {why}", expand, takes_value)


def take(arguments: list[str], flag: str) -> tuple[list[str], str | None]:
    """The arguments without a flag and its value, and the value: `--flag value` or `--flag=value`."""
    for position, word in enumerate(arguments):
        if word == flag and position + 1 < len(arguments):
            return arguments[:position] + arguments[position + 2 :], arguments[position + 1]
        if word.startswith(f"{flag}="):
            return arguments[:position] + arguments[position + 1 :], word.partition("=")[2]
    return arguments, None


def value_of(arguments: Iterable[str], flag: str) -> str | None:
    return take(list(arguments), flag)[1]
