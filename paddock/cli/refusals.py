"""What is wrong with a command line, before it is parsed: in our words, with the nearest flag that there is."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from paddock.cli.known_flags import Flag, flags_of, words_of
from paddock.errors import ConfigError, bad_value, nearest, shown

FRAME = re.compile(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]+")
NUMBERS = {int: "a whole number", float: "a number"}


@dataclass(frozen=True)
class Page:
    """What a command line may hold."""

    command: str
    """What its help is asked for by, without --help."""
    flags: Mapping[str, Flag]
    words: Sequence[Flag] = ()
    aliases: Sequence[str] = field(default_factory=list)
    """Spellings that were translated before: they are known, and may be what somebody meant."""

    @classmethod
    def of(cls, command: str, options: type[Any], aliases: Sequence[str] = ()) -> Page:
        """What tyro would take for these options."""
        return cls(command, {flag.name: flag for flag in flags_of(options)}, words_of(options), aliases)

    def check(self, arguments: Sequence[str]) -> None:
        """An error for the first thing that is wrong."""
        rest, given, position = list[str](), set[str](), 0
        while position < len(arguments):
            word, position = arguments[position], position + 1
            if word == "--":
                rest, position = [*rest, *arguments[position:]], len(arguments)
            elif word.startswith("--") or re.match(r"-[A-Za-z]", word):
                given.add(word.partition("=")[0].replace("_", "-"))
                position = self._check_flag(word, arguments, position)
            else:
                rest.append(word)
        needed = [flag.name for flag in self.flags.values() if flag.needed and given.isdisjoint(flag.spellings)]
        self._check_words(rest, needed)

    def _check_flag(self, word: str, arguments: Sequence[str], position: int) -> int:
        """Look at a flag, and go on behind its value."""
        name, equals, value = word.partition("=")
        flag = self.flags.get(name.replace("_", "-"))
        if flag is None:
            following = value or (arguments[position] if position < len(arguments) else "")
            self._refuse(name, "" if following.startswith("--") else following)
        if not flag.kinds or equals:
            values = [value] if equals and flag.kinds else []
        else:
            end = next((at for at in range(position, len(arguments)) if _is_flag(arguments[at])), len(arguments))
            values = list(arguments[position : end if flag.several else min(end, position + 1)])
            if not values and not flag.several:
                raise ConfigError(f"{name} needs a value", fix=self._see())
        if not flag.several and values:
            _check_value(name, values[0], flag)
        return position + (0 if equals else len(values))

    def _check_words(self, rest: Sequence[str], flags: Sequence[str]) -> None:
        lacking = [*[word.name for word in self.words if word.needed][len(rest) :], *flags]
        if lacking:
            raise ConfigError(f"{self.command} needs {' and '.join(lacking)}", fix=self._see())
        if len(rest) > len(self.words) and not any(word.several for word in self.words):
            extra = rest[len(self.words)]
            takes = " and ".join(word.name for word in self.words) or "flags alone"
            raise ConfigError(
                f'"{shown(extra)}" is one word too many', why=f"{self.command} takes {takes}", fix=self._see()
            )
        for word, value in zip(self.words, rest, strict=False):
            if word.choices and value not in word.choices:
                raise ConfigError(
                    f'{self.command} knows no "{shown(value)}"',
                    why=f"it is one of {', '.join(word.choices)}",
                    fix=nearest(value, word.choices) or self._see(),
                )

    def _refuse(self, name: str, value: str) -> NoReturn:
        what, see = f"there is no flag {shown(name)}", self._see()
        section = sorted(flag for flag in self.flags if flag.startswith(f"{name}."))
        if section:
            path = f"{name}.path"
            if path in section and ("." in value or "/" in value):
                is_text = os.path.isfile(value) and f"{name}.source" in section
                raise ConfigError(what, fix=f"set {path} {value}" + (f" {name}.source text" if is_text else ""))
            raise ConfigError(what, why=f"{name.removeprefix('--')} is a section: {' '.join(section)}", fix=see)
        _, dot, last = name.removeprefix("--").rpartition(".")
        other = sorted(flag for flag in self.flags if dot and flag.startswith(f"--{last}."))
        if other:
            raise ConfigError(what, why=f"{last} is a section of its own: {' '.join(other)}", fix=see)
        own = [flag for flag in self.flags if flag.rpartition(".")[2] in (last, f"--{last}")]
        own = own or [flag for flag in self._everything() if flag.startswith(f"{name}-")]
        if own:
            raise ConfigError(what, fix=f"did you mean {' or '.join(own)}? {see}")
        raise ConfigError(what, fix=" ".join(filter(None, [nearest(name, self._everything()), see])))

    def _everything(self) -> list[str]:
        return [*self.flags, *self.aliases]

    def _see(self) -> str:
        return f"`{self.command} --help` lists what there is"


@contextlib.contextmanager
def in_our_words(command: str) -> Iterator[None]:
    """What tyro still refuses, as an error of ours."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            yield
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = [" ".join(FRAME.sub(" ", line).split()) for line in told.getvalue().splitlines()]
        body = [line for line in lines if line and not line.startswith("For full helptext")]
        raise ConfigError(
            " ".join(body[1:]) or "the command line cannot be read", fix=f"see `{command} --help`"
        ) from None


def _is_flag(word: str) -> bool:
    return word.startswith("--") and len(word) > 2


def _check_value(name: str, value: str, flag: Flag) -> None:
    """An error, if a value is none of the kinds that are told by a glance."""
    kinds, choices = flag.kinds, [*flag.choices, *(["None"] if type(None) in flag.kinds else [])]
    if value in choices or not all(kind in (int, float, type(None)) or flag.choices for kind in kinds):
        return
    wanted = [kind for kind in kinds if kind in NUMBERS]
    for kind in wanted:
        with contextlib.suppress(ValueError):
            kind(value)
            return
    if flag.choices:
        near = nearest(value, flag.choices)
        raise bad_value(name, value, f"it is one of {', '.join(flag.choices)}", near)
    raise bad_value(name, value, f"it should be {' or '.join(NUMBERS[kind] for kind in wanted)}")
