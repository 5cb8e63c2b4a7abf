"""What a flag of another system can become here: another name, a switch, a word on what happens instead, or an error
that says why it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddock.errors import ConfigError, bad_value, did_you_mean, shown

Expansion = Callable[[str], list[str]]


@dataclass(frozen=True)
class Alias:
    """`flags` become what `expand` makes of their value; `means` is what the help shows."""

    flags: tuple[str, ...]
    means: str
    expand: Expansion
    takes_value: bool = True
    note: str = ""
    several: bool = False
    """Whether all the words up to the next flag are its value."""

    @property
    def is_mapped(self) -> bool:
        """Whether it becomes something here."""
        return not self.means.startswith(("(", "not here"))

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for all flags that begin so."""
        return self.flags[0].endswith("*")


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


def no_meaning(flags: str, note: str, takes_value: bool = False, several: bool = False) -> Alias:
    """A flag that is accepted, with a word on what happens instead."""
    return Alias(tuple(flags.split()), f"({note})", lambda _: [], takes_value, note, several)


@dataclass(frozen=True)
class System:
    """A system that users come from, with its flags, and the families that they are for; none is all."""

    name: str
    aliases: list[Alias]
    families: tuple[str, ...] = ()
    takes_folder: bool = False
    """Whether a word that belongs to no flag is the folder of the data."""


def built_in(flags: str, allowed: str, note: str) -> list[Alias]:
    """Choices that are made here once and for all: one of the words of `allowed` is as it is, any other is an error."""
    return [_built_in(flag, allowed.split(), note) for flag in flags.split()]


def _built_in(flag: str, words: list[str], note: str) -> Alias:
    def expand(value: str) -> list[str]:
        if value not in words:
            raise bad_value(flag, value, note, f"{' or '.join(words)}, or leave it out")
        return []

    return Alias((flag,), f"({note}: {' or '.join(words)})", expand)


def impossible(flags: str, why: str, fix: str, takes_value: bool = False) -> list[Alias]:
    """Flags that would make another model or another training of it than there is here."""
    return [_impossible(flag, why, fix, takes_value) for flag in flags.split()]


def _impossible(flag: str, why: str, fix: str, takes_value: bool) -> Alias:
    def expand(_: str) -> list[str]:
        raise ConfigError(f"{flag} has nothing here that it could mean", why=why, fix=fix)

    return Alias((flag,), f"not here: {why}", expand, takes_value)


def choice(flags: str, field: str, values: dict[str, str]) -> Alias:
    """Another name of a field, whose values have other names too."""
    name = flags.split()[0]

    def convert(value: str) -> list[str]:
        if value.lower() not in values:
            raise bad_value(name, value, "it is not known", did_you_mean(value, list(values)))
        return [f"--{field}", values[value.lower()]]

    return Alias(tuple(flags.split()), f"--{field}", convert)


def only_one(flags: str, why: str) -> list[Alias]:
    """Sizes that are only known as one."""
    return built_in(flags, "1 -1", why)


def each(flags: str, note: str, takes_value: bool = False, several: bool = False) -> list[Alias]:
    """Several flags without a meaning here, for the same reason."""
    return [no_meaning(flag, note, takes_value, several) for flag in flags.split()]


def off(names: str, note: str) -> list[Alias]:
    """Switches that Megatron-LM turns off by two spellings each."""
    return [no_meaning(f"--no-{name} --disable-{name}", note) for name in names.split()]


def any_of(pattern: str, note: str) -> Alias:
    """All flags that begin as the pattern, `--gtp-*`, which have no meaning here, whether they take values or not."""
    return no_meaning(pattern, note, several=True)


def none_of(patterns: str, why: str, fix: str = "leave it out") -> list[Alias]:
    """All flags that begin as one of the patterns, `--moe-*`, which are of what is not here."""
    return [_none_of(pattern, why, fix) for pattern in patterns.split()]


def _none_of(pattern: str, why: str, fix: str) -> Alias:
    def expand(flag: str) -> list[str]:
        raise ConfigError(f"{shown(flag)} has nothing here that it could mean", why=why, fix=fix)

    return Alias((pattern,), f"not here: {why}", expand, takes_value=False)


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


def whole(flag: str, text: str, most: int = 100_000) -> int:
    """A count, before the recipe's own checks see it."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(most)) or not 1 <= int(text) <= most:
        raise bad_value(flag, text, f"it should be a whole number from 1 to {most:,}")
    return int(text)
