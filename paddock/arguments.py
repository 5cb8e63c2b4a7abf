"""What the arguments of the Python interface may be. A value of another type is refused at once, by the name of the
argument, rather than by whatever comes upon it later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path

from paddock.errors import ConfigError

NAMES = {
    str: "a text",
    Path: "a path",
    Mapping: "a dictionary",
    int: "a whole number",
    Integral: "a whole number",
    float: "a number",
    Real: "a number",
    bool: "True or False",
}
"""What types are called for people."""


def check_type(argument: str, value: object, *kinds: type, fix: str = "") -> None:
    """Raise ConfigError for an argument that is there and of none of these types."""
    is_number = isinstance(value, bool) and bool not in kinds  # which Python takes for a whole number
    if value is not None and (is_number or not isinstance(value, kinds)):
        wanted = " or ".join(dict.fromkeys(NAMES[kind] for kind in kinds))
        raise ConfigError(f"{argument} is {described(value)}", why=f"what is wanted is {wanted}", fix=fix)


def listed(argument: str, value: object, fix: str = "give a text, or a list of texts") -> list[str]:
    """The texts of an argument that is one or several; ConfigError for anything else."""
    texts = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            place = argument if value is text else f"{argument}[{number}]"
            raise ConfigError(f"{place} is {described(text)}", why="what is wanted is a text", fix=fix)
    return [text for text in texts if isinstance(text, str)]


def described(value: object) -> str:
    """A value that is not what it should be, in a word or two."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    words = repr(value)
    kind = type(value).__name__
    return f"{words}, of type {kind}" if len(words) <= 40 and "\n" not in words else f"of type {kind}"
