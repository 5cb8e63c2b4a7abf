"""The arguments of a trainer that are more than plain values: callbacks, and names of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock.arguments import check_type, described
from paddock.errors import ConfigError
from paddock.training.callbacks import Callback


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
