"""What each machine of a job says of itself before the job has processes, and what does not fit together.

Where most machines agree, the others are named; where no majority is, machine 0 is the yardstick.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from paddock.errors import MachineError, UserError, shown
from paddock.messages import error_from_json, error_to_json

OWN_PLACES = ("data.path", "data.validation", "data.cache", "data.workers")
"""Fields of a recipe that may differ from machine to machine: what the data is, its fingerprint says."""
MOST_NAMED = 8
"""Machines, or fields, that a message lists."""


@dataclass(frozen=True)
class Facts:
    """One machine, in its own words. Plain values, for JSON."""

    machine: int
    host: str
    processes: int
    """How many it is to start."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of what computes: Paddock, torch, the device's library."""
    device: str = "cpu"
    devices: int | None = None
    """How many there are; None where processes share one, as on a CPU."""
    recipe: Mapping[str, str] = field(default_factory=dict)
    """The fields of what it was told to do, each as text."""
    place: tuple[str, int] | None = None
    """Address and port at which another machine can try to reach it."""
    error: Mapping[str, Any] | None = None
    """Why it cannot take part."""

    def __str__(self) -> str:
        return f"machine {self.machine} ({self.host})"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Facts:
        values = json.loads(text)
        return Facts(**{**values, "place": values["place"] and tuple(values["place"])})


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be, where, and what to do."""

    machine: int
    what: str
    fix: str = ""
    prevents: bool = True
    """Whether the job cannot begin; else people should only know."""


def own_facts(machine: int, processes: int, device: str, recipe: Mapping[str, Any]) -> Facts:
    """This machine's; an error of its device is among them, for all to hear."""
    import socket

    from paddock.devices import select
    from paddock.versions import versions

    host = socket.gethostname()
    numbers = {name: versions()[name] for name in ("paddock", "torch")}
    try:
        adapter = select(device)
        version = None if adapter.computes_on_host else adapter.version()
        numbers |= {} if version is None else {adapter.package or adapter.name: version}
        count = None if adapter.computes_on_host else adapter.count()
    except UserError as error:
        return Facts(machine, host, processes, numbers, device, error=error_to_json(error))
    return Facts(machine, host, processes, numbers, adapter.name, count, flat(recipe))


def flat(recipe: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A recipe as one level of dotted names, without what may differ."""
    found: dict[str, str] = {}
    for name, value in recipe.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{name}.")
        elif prefix + name not in OWN_PLACES:
            found[prefix + name] = shown(json.dumps(value))
    return found


def compare(machines: Sequence[Facts]) -> list[Finding]:
    """What does not fit together. A machine that cannot take part is not compared any further."""
    broken = [one for one in machines if one.error is not None]
    sound = [one for one in machines if one.error is None]
    return [
        *(_told(one) for one in broken),
        *_versions(sound),
        *_unlike(sound, "device", lambda one: one.device, "give --device"),
        *_unlike(sound, "--nproc-per-node", lambda one: str(one.processes), "give --nproc-per-node"),
        *_devices(sound),
        *_recipes(sound),
    ]


def refusal(machines: Sequence[Facts], findings: Sequence[Finding]) -> MachineError | None:
    """One error about everything that keeps the job from beginning."""
    grave = [one for one in findings if one.prevents]
    if not grave:
        return None
    bad = sorted({one.machine for one in grave})
    names = {one.machine: str(one) for one in machines}
    who = listed([names.get(number, f"machine {number}") for number in bad])
    fixes = dict.fromkeys(f"machine {one.machine}: {one.fix}" for one in grave if one.fix)
    return MachineError(
        f"{who} {'is' if len(bad) == 1 else 'are'} not ready",
        why=_lines([f"machine {one.machine}: {one.what}" for one in grave]),
        fix=_lines([*fixes]) or "see above",
    )


def listed(words: Sequence[str]) -> str:
    """Some words, and how many more there are."""
    if len(words) > MOST_NAMED:
        return f"{', '.join(words[:MOST_NAMED])} and {len(words) - MOST_NAMED} more"
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), *words[-1:]])


def _lines(words: Sequence[str]) -> str:
    more = [f"and {len(words) - MOST_NAMED} more"] if len(words) > MOST_NAMED else []
    return "\n       ".join([*words[:MOST_NAMED], *more])


def _told(one: Facts) -> Finding:
    assert one.error is not None
    error = error_from_json(dict(one.error))
    return Finding(one.machine, error.what + (f": {error.why}" if error.why else ""), error.fix)


def _versions(machines: Sequence[Facts]) -> Iterator[Finding]:
    names = dict.fromkeys(name for one in machines for name in one.versions)
    for name in names:
        yield from _unlike(machines, name, lambda one, name=name: one.versions.get(name, "missing"), "install")  # type: ignore[misc]


def _recipes(machines: Sequence[Facts]) -> Iterator[Finding]:
    """Every machine's different fields together."""
    names = dict.fromkeys(name for one in machines for name in one.recipe)
    found: dict[int, list[str]] = {}
    for name in names:
        usual, others = _minority({one.machine: one.recipe.get(name, "nothing") for one in machines})
        for machine, value in others.items():
            found.setdefault(machine, []).append(f"{name} = {value}, and {usual} elsewhere")
    for machine, fields in found.items():
        yield Finding(machine, listed(fields), "give the same recipe and the same flags everywhere")


def _devices(machines: Sequence[Facts]) -> Iterator[Finding]:
    for one in machines:
        if one.devices is not None and one.devices < one.processes:
            what = f"{one.processes} processes, and {_many(one.devices, one.device)} to be seen"
            yield Finding(one.machine, what, f"look why (paddock doctor), or give --nproc-per-node {one.devices}")
    usual, others = _minority({one.machine: str(one.devices) for one in machines})
    for machine, count in others.items():
        what = f"{count} {machines[0].device} devices, and {usual} elsewhere: one may have failed"
        yield Finding(machine, what, prevents=False)


def _many(count: int, device: str) -> str:
    return f"{count} {device} device{'' if count == 1 else 's'}"


def _unlike(machines: Sequence[Facts], name: str, value_of: Callable[[Facts], str], remedy: str) -> Iterator[Finding]:
    usual, others = _minority({one.machine: value_of(one) for one in machines})
    for machine, value in others.items():
        fix = f"{remedy} {usual if remedy.startswith('give') else f'{name} {usual}'} there, as elsewhere"
        yield Finding(machine, f"{name} {value}, and {usual} elsewhere", fix)


def _minority(values: Mapping[int, str]) -> tuple[str, dict[int, str]]:
    """What most machines have, else machine 0; and those that have something else."""
    if not values:
        return "", {}
    counts = Counter(values.values())
    most = max(counts.values())
    first = next(iter(values.values()))
    usual = first if counts[first] == most else next(value for value in counts if counts[value] == most)
    return usual, {machine: value for machine, value in values.items() if value != usual}
