"""What the arguments of the Python interface may be. A value of another type is refused at once, by the name of the
argument, rather than by whatever comes upon it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from paddock.errors import ConfigError
from paddock.training.callbacks import Callback

NAMES = {
    str: "a text",
    Path: "a path",
    Mapping: "a dictionary",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
}
"""What types are called for people."""


def check_type(argument: str, value: object, *kinds: type, fix: str = "") -> None:
    """Raise ConfigError for an argument that is there and of none of these types."""
    is_number = isinstance(value, bool) and bool not in kinds  # which Python takes for a whole number
    if value is not None and (is_number or not isinstance(value, kinds)):
        wanted = " or ".join(NAMES[kind] for kind in kinds)
        raise ConfigError(f"{argument} is {described(value)}", why=f"what is wanted is {wanted}", fix=fix)


def described(value: object) -> str:
    """A value that is not what it should be, in a word or two."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    words = repr(value)
    kind = type(value).__name__
    return f"{words}, of type {kind}" if len(words) <= 40 and "\n" not in words else f"of type {kind}"


def check_callbacks(callbacks: object) -> None:
    """Functions and `Callback`s, in a row."""
    if isinstance(callbacks, str) or not isinstance(callbacks, Sequence):
        raise ConfigError(
            f"callbacks is {described(callbacks)}", why="what is wanted is a list", fix="put brackets around it"
        )
    for number, callback in enumerate(callbacks):
        if isinstance(callback, type) and issubclass(callback, Callback):
            raise ConfigError(
                f"callbacks[{number}] is the class {callback.__name__}",
                why="a run calls the methods of an object",
                fix=f"make one: {callback.__name__}()",
            )
        if not (isinstance(callback, Callback) or callable(callback)):
            raise ConfigError(
                f"callbacks[{number}] is {described(callback)}",
                why="it can neither be called with a step and its metrics, nor is it a Callback",
            )


def check_checkpoint(argument: str, source: object) -> None:
    """True, a path, or nothing."""
    check_type(argument, source, bool, str, Path, fix="True for this trainer's own, or name a run or a folder")
