"""Whether two runs can be compared at all: what differs between them, what is unknown, and whether that matters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paddock.errors import ConfigError, shown

State = Literal["same", "differs", "unknown"]
Weight = Literal["decides", "listed", "free"]

CORE = {
    "task": "task",
    "model.family": "model",
    "train.seed": "seed",
    "training data": "training data",
    "batch.global": "global batch",
    "precision.compute": "precision",
    "layout": "layout",
    "device": "device",
    "torch": "torch",
    "paddock": "paddock",
}
"""What is always said of two runs, by what people call it."""
DECIDES = ("task", "model.", "optimizer.", "schedule.", "data.", "train.seed", "training data", "batch.global")
"""Where two runs that differ are two experiments: beginnings of facts' names."""
LISTED = (
    "data.path",
    "data.validation",
    "data.cache",
    "data.workers",
    "data.source",
    "data.on_error",
    "checkpoint.load",
)
"""Of those, what is a place or a way: whether the data is the same its fingerprint says."""
UNKNOWN = "unknown"
FREE = ("parallel.", "layout", "device", "batch.micro", "batch.accumulation", "train.compile", "log.", "checkpoint.")
"""What may differ: that runs agree all the same is what is to be shown."""


@dataclass(frozen=True)
class Fact:
    """Something that two runs have in common, or not."""

    name: str
    label: str
    a: Any
    b: Any
    state: State
    weight: Weight

    @property
    def prevents(self) -> bool:
        """Whether a comparison would mean nothing."""
        return self.state == "differs" and self.weight == "decides"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "a": self.a, "b": self.b, "state": self.state, "weight": self.weight}


@dataclass(frozen=True)
class Comparability:
    """What is known of two runs, beside each other."""

    facts: tuple[Fact, ...]

    @property
    def shown(self) -> list[Fact]:
        """What people want to see: the usual facts, whatever they are, and every difference."""
        return [fact for fact in self.facts if fact.name in CORE or fact.state == "differs"]

    @property
    def preventing(self) -> list[Fact]:
        return [fact for fact in self.facts if fact.prevents]

    def count(self, state: State) -> int:
        """Of the facts that are not shown, how many are so."""
        hidden = [fact for fact in self.facts if fact not in self.shown]
        return sum(fact.state == state for fact in hidden)

    def check(self, a: str, b: str) -> None:
        """Raise if a comparison would mean nothing."""
        found = self.preventing
        if found:
            differences = [f"{fact.label}: {word(fact.a)} and {word(fact.b)}" for fact in found[:12]]
            more = f"; and {len(found) - 12} more" if len(found) > 12 else ""
            raise ConfigError(
                f"{a} and {b} are different experiments",
                why="; ".join(differences) + more,
                fix="make runs that differ in layout or device alone; or compare them all the same, with "
                "--allow-differences",
            )


def compare_facts(a: Mapping[str, Any], b: Mapping[str, Any]) -> Comparability:
    """The facts of two runs beside each other: the usual ones first, then the rest by name."""
    names = [*CORE, *sorted((a.keys() | b.keys()) - CORE.keys())]
    return Comparability(tuple(_facts(names, a, b)))


def _facts(names: list[str], a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Fact]:
    for name in names:
        known = name in a and name in b
        state: State = "unknown" if not known else "same" if _same(a[name], b[name]) else "differs"
        yield Fact(name, CORE.get(name, name), a.get(name, UNKNOWN), b.get(name, UNKNOWN), state, weight_of(name))


def weight_of(name: str) -> Weight:
    """Whether a difference in this matters."""
    if name.startswith(LISTED):
        return "listed"
    return "free" if name.startswith(FREE) else "decides" if name.startswith(DECIDES) else "listed"


def _same(a: Any, b: Any) -> bool:
    """Equal, or two spellings of one number: in logs of others numbers are often text."""
    if a == b:
        return True
    try:
        return not isinstance(a, bool) and not isinstance(b, bool) and float(a) == float(b)
    except (TypeError, ValueError, OverflowError):
        return False


def word(value: Any) -> str:
    """A fact's value for people."""
    if value is None:
        return "none"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return shown(" ".join(map(str, value)) if isinstance(value, list | tuple) else value)
