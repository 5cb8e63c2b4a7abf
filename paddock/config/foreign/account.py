"""What became of each key of a foreign config: the account that a conversion keeps, and the recipe that it makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from paddock.config.plain_yaml import DEEPEST
from paddock.errors import ConfigError, bad_value, nearest, shown

Outcome = Literal["kept", "renamed", "near", "follows", "idle", "refused"]
MOST_KEYS = 20_000
"""Of a config; real ones have a few hundred."""
MOST_TOLD = 12
"""Refused keys in an error."""
LARGEST_NUMBER = 10**9
"""Of what is counted in layers, samples and processes."""


@dataclass(frozen=True)
class Line:
    """A key, and what became of it."""

    key: str
    value: Any
    outcome: Outcome
    """kept: the recipe has it by the same name; renamed: by another; near: what is here differs a little, as the note
    says; follows: no key says it; idle: it has no meaning here; refused: the recipe would mean something else."""
    field: str = ""
    """In the recipe."""
    became: Any = None
    note: str = ""

    def __str__(self) -> str:
        """As people read it."""
        said = f"{self.key} = {shown(self.value)}" if self.key else "not said"
        if self.field:
            said += f" → {self.field}" + ("" if self.became == self.value else f" = {shown(self.became)}")
        words = {"idle": ": no meaning here: ", "refused": ": REFUSED: "}
        return said + (words.get(self.outcome, ": ") + self.note if self.note else "")

    def to_dict(self) -> dict[str, Any]:
        named = {"key": self.key or None, "value": self.value, "outcome": self.outcome}
        return named | {"field": self.field or None, "became": self.became, "note": self.note or None}


@dataclass
class Account:
    """The keys of a foreign config, each of which is to be told something about; and the recipe so far."""

    system: str
    values: dict[str, Any]
    """By their dotted names, in the order of the file."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """As it is written: sections of fields."""
    lines: dict[str, Line] = field(default_factory=dict)
    implied: list[Line] = field(default_factory=list)
    """What follows though no key says it."""

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def first(self, *keys: str) -> str:
        """The one that is there of several spellings; the first where none is."""
        return next((key for key in keys if key in self.values), keys[0])

    def whole(self, key: str, default: int = 1) -> int:
        """A count."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_NUMBER:
            raise bad_value(key, value, f"it should be a whole number, at most {LARGEST_NUMBER:,}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise bad_value(key, value, "it is true or false")
        return value

    def number(self, key: str, default: float = 0.0) -> float:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_value(key, value, "it should be a number")
        return value

    def word(self, key: str, default: str = "") -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise bad_value(key, value, "it should be a word")
        return value

    def put(self, name: str, value: Any, note: str = "") -> None:
        """A field of the recipe that no key says: a default of that system, or what follows from several keys."""
        self._set(name, value)
        if note:
            self.implied.append(Line("", None, "follows", name, value, note))

    def move(self, key: str, name: str, *became: Any, note: str = "", near: bool = False) -> None:
        """A key becomes a field, with its own value or another; nothing where the key is not there."""
        if key not in self.values:
            return
        value = self.values[key]
        result = became[0] if became else value
        self._set(name, result)
        same = key.rpartition(".")[2] == name.rpartition(".")[2] and result == value
        outcome: Outcome = "near" if near else "kept" if same else "renamed"
        self.lines[key] = Line(key, value, outcome, name, result, note)

    def idle(self, key: str, note: str) -> None:
        """A key without a meaning here, where nothing else was told of it."""
        if key in self.values and key not in self.lines:
            self.lines[key] = Line(key, self.values[key], "idle", note=note)

    def refuse(self, key: str, note: str) -> None:
        """A key that would be another thing here."""
        self.lines[key] = Line(key, self.get(key), "refused", note=note)

    def must_be(self, key: str, allowed: tuple[Any, ...], note: str) -> None:
        """A setting that is built in here: as it is, it needs no field; otherwise the recipe would be another."""
        if key not in self.values:
            return
        if self.values[key] in allowed:
            self.idle(key, note)
        else:
            self.refuse(key, note)

    def explain_rest(self, patterns: Mapping[str, str]) -> None:
        """Tell of every key that is left: idle where a pattern says why, else unknown, which is refused."""
        unknown = 0
        for key in self.values:
            if key in self.lines:
                continue
            why = next((note for pattern, note in patterns.items() if fnmatchcase(key, pattern)), None)
            if why is not None:
                self.idle(key, why)
                continue
            unknown += 1
            known = [*self.lines, *(pattern for pattern in patterns if "*" not in pattern)]
            near = nearest(key, known) if unknown <= MOST_TOLD else ""
            self.refuse(key, f"unknown to Paddock as a key of {self.system}. {near}".rstrip())

    def in_order(self) -> list[Line]:
        """As in the file, then what follows from it, then what it lacks."""
        of_file = [self.lines[key] for key in self.values if key in self.lines]
        lacking = [line for key, line in self.lines.items() if key not in self.values]
        return [*of_file, *self.implied, *lacking]

    def check(self, name: str) -> None:
        """Raise what was refused, all at once."""
        refused = [line for line in self.in_order() if line.outcome == "refused"]
        if not refused:
            return
        raise ConfigError(
            f"{name} has {len(refused)} key{'s' if len(refused) > 1 else ''} that would mean something else here",
            why="; ".join(f"{line.key} = {shown(line.value)}: {line.note}" for line in refused[:MOST_TOLD])
            + (f"; and {len(refused) - MOST_TOLD} more" if len(refused) > MOST_TOLD else ""),
            fix="change or remove them, or say another value on the command line: KEY=VALUE",
        )

    def _set(self, name: str, value: Any) -> None:
        *section, last = name.split(".")
        place = self.recipe
        for part in section:
            place = place.setdefault(part, {})
        place[last] = value


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by their dotted names; sections in lists are numbered: `dataset[0].path`."""
    found: dict[str, Any] = {}
    for key, value in _leaves("", values, 0):
        if len(found) >= MOST_KEYS:
            raise ConfigError(f"the config has more than {MOST_KEYS:,} keys", fix="this is no config")
        found[key] = value
    return found


def _leaves(prefix: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > DEEPEST:
        raise ConfigError(f"{shown(prefix)} is nested too deeply, or in itself", fix="this is no config")
    if isinstance(value, Mapping) and value:
        for key, inside in value.items():
            name = f"{prefix}[{key}]" if isinstance(key, int) else f"{prefix}.{key}" if prefix else str(key)
            yield from _leaves(name, inside, depth + 1)
    elif isinstance(value, Mapping) and prefix:
        return  # an empty section says nothing
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for position, item in enumerate(value):
            yield from _leaves(f"{prefix}[{position}]", item, depth + 1)
    else:
        yield prefix, value
