"""Errors that a user can act on: each says what is wrong, why, and what to do, and carries an exit code.

Everything else that is raised is a bug of ours and keeps its stack trace.
"""

from __future__ import annotations

import linecache
import re
import traceback
from typing import Any

PACKAGE = __name__.partition(".")[0]
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9_.-]*[a-z0-9])(?:[ =](None|-?\d[\d.e+-]*(?<!\.)|\w+(?=[,;.)]|$)))?")
"""A flag of the command line, and its value, where it is plain which that is."""


class UserError(ValueError):
    """Base of every error that is the input's or the machine's fault rather than ours."""

    exit_code = 1
    follows_result = False
    """Whether a result that says the same has been printed before it."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows instead of the stack trace: the line that asked for it, and the message, in the words
        of Python. IPython calls it."""
        trace = str(getattr(self, "traceback", "")).splitlines()  # of another process
        why = [f"  why: {in_python(self.why)}"] if self.why else []
        fix = [f"  fix: {in_python(self.fix, sets=True)}"] if self.fix else []
        return [*trace, *_own_line(self), f"{type(self).__name__}: {in_python(self.what)}", *why, *fix]

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.why, self.fix)


class ConfigError(UserError):
    """A recipe, flag or command that cannot work."""

    exit_code = 2


class MachineError(UserError):
    """The environment or the launch: a missing device or package, a disk that is full or read-only."""

    exit_code = 3


class DataError(UserError):
    """Data, weights or checkpoints that are missing, truncated, foreign or do not fit."""

    exit_code = 4


class NumericsError(UserError):
    """A loss or gradient that is not finite and was not skipped."""

    exit_code = 5


class HangError(UserError):
    """A process that stopped making progress."""

    exit_code = 6


class CheckFailed(UserError):
    """A check that ran to its end and found a difference."""

    exit_code = 7
    follows_result = True


STOPPED = 8
"""The exit code of work that a signal stopped: it is saved and can go on. No error, and not done either."""
LONGEST_SHOWN = 200
"""Characters of a value that a message repeats."""
MUCH_LESS_LIKE = 0.15
"""What is so much less like a word than the nearest is not meant."""


def bad_value(field: str, value: object, why: str, fix: str = "") -> ConfigError:
    """The usual form of a config error: the field, its value, why it cannot be, and what to do."""
    return ConfigError(f"{field} = {shown(value)}", why=why, fix=fix)


def shown(value: object) -> str:
    """A value for a message, cut where it would fill the screen."""
    text = str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}… ({len(text):,} characters)"


def in_python(text: str, *, sets: bool = False) -> str:
    """A message with the flags of the command line as Python has them: `--run-dir` is run_dir, and of the recipe's
    fields, `--train.steps` is train.steps. What `sets` them has overrides. Whole commands stay as they are."""

    def spelled(flag: re.Match[str]) -> str:
        name, value = flag[1].replace("-", "_"), flag[2]
        if value is None or not sets:
            return name if value is None else f"{name} {value}"
        word = {"true": "True", "false": "False"}.get(value, value)
        is_text = re.fullmatch(r"None|True|False|-?\d[\d.e+-]*", word) is None
        word = f'"{word}"' if is_text else word
        return f'overrides={{"{name}": {word}}}' if "." in name else f"{name}={word}"

    pieces = text.split("`")
    return "`".join(piece if place % 2 else FLAG.sub(spelled, piece) for place, piece in enumerate(pieces))


def _own_line(error: BaseException) -> list[str]:
    """Where the user's own code asked for what failed: the last line before this package's."""
    own = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == PACKAGE:
            break
        own = frame, number
    if own is None:
        return []
    frame, number = own
    code = frame.f_code.co_filename
    line = linecache.getline(code, number, frame.f_globals).strip()
    place = f"line {number}" if frame.f_globals.get("__name__") == "__main__" else f"{code}, line {number}"
    return [f"{place}: {line}", ""] if line else []


def did_you_mean(word: str, choices: list[str]) -> str:
    """`did you mean "x"?`, or the choices themselves when nothing is near."""
    return nearest(word, choices) or "choose from: " + ", ".join(choices)


def nearest(word: str, choices: list[str]) -> str:
    """`did you mean "x"?`, or nothing when nothing is near."""
    near = near_words(word, choices)
    return "did you mean " + " or ".join(f'"{name}"' for name in near) + "?" if near else ""


def near_words(word: str, choices: list[str]) -> list[str]:
    """Those that may be meant, the nearest first."""
    import difflib

    word = word[:LONGEST_SHOWN]
    near = difflib.get_close_matches(word, choices, n=3, cutoff=0.55)
    likeness = [difflib.SequenceMatcher(None, name, word).ratio() for name in near]
    return [name for name, like in zip(near, likeness, strict=True) if like > likeness[0] - MUCH_LESS_LIKE]


def _rebuild(kind: type[UserError], what: str, why: str, fix: str) -> UserError:
    return kind(what, why=why, fix=fix)
