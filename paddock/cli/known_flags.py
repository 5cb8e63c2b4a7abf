"""The flags and words that a verb takes, as a table: to say what is wrong with others, and to complete those half
typed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from paddock.config.overrides import union_members

_ANY_WORD: Any = tyro.conf.Positional
POSITIONAL = _ANY_WORD[Any].__metadata__[0]
"""The note with which tyro marks what needs no flag."""


@dataclass(frozen=True)
class Flag:
    """One spelling of a flag, or a word that needs none."""

    name: str
    """With its dashes; of a word, what the help calls it."""
    kinds: tuple[Any, ...] = ()
    """The types that its value may have; none, where it takes no value."""
    several: bool = False
    """Whether it takes all the words up to the next flag."""
    needed: bool = False
    """Whether there must be one; the first of several spellings says so."""
    also: tuple[str, ...] = ()
    """Its other spellings."""

    @property
    def spellings(self) -> set[str]:
        """All of them, with dashes alone."""
        return {one.replace("_", "-") for one in (self.name, *self.also)}

    @property
    def choices(self) -> list[str]:
        """The words that its value is one of, if they are few."""
        return [str(word) for kind in self.kinds if get_origin(kind) is Literal for word in get_args(kind)]


def flags_of(options: type[Any], prefix: str = "") -> Iterator[Flag]:
    """Of a dataclass that tyro reads, and of those in it."""
    hints = get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        kind, extras = _unwrapped(hints[field.name])
        named = [extra.name for extra in extras if getattr(extra, "name", None) is not None]
        own = (named[0] if named else field.name).replace("_", "-")
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from flags_of(kind, prefix + (f"{own}." if own else ""))
        elif POSITIONAL not in extras:
            yield from _spellings(prefix, own, kind, extras, _has_no_default(field))


def words_of(options: type[Any]) -> list[Flag]:
    """What a verb takes without a flag, in order."""
    words = []
    hints = get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        kind, extras = _unwrapped(hints[field.name])
        if POSITIONAL in extras:
            called = next((extra.metavar for extra in extras if getattr(extra, "metavar", None)), field.name.upper())
            words.append(Flag(called, (kind,), get_origin(kind) is tuple, _has_no_default(field)))
    return words


def _spellings(prefix: str, own: str, kind: Any, extras: tuple[Any, ...], needed: bool) -> Iterator[Flag]:
    name, kinds = f"--{prefix}{own}", tuple(union_members(kind))
    if kind is bool:
        yield Flag(name)
        yield Flag(f"--{prefix}no-{own}")
        return
    several = any(get_origin(member) is tuple for member in kinds)
    several = several or any(getattr(extra, "nargs", None) == "*" for extra in extras)
    aliases = [alias for extra in extras for alias in getattr(extra, "aliases", None) or ()]
    yield Flag(name, kinds, several, needed, tuple(aliases))
    yield from (Flag(alias, kinds, several) for alias in aliases)


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without what is noted beside it, and the notes."""
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
