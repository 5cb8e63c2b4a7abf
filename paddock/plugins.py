"""What other packages bring: families, tasks, devices and callbacks, by entry point or by registering them; and what a
program lends to a run: a module or a dataset of its own.

A package names what it brings in its metadata (`[project.entry-points."paddock.devices"]`, `NAME = "module:object"`),
or a module of the user registers it when it is imported. Nothing is looked for at import: every help page would wait
for the metadata of all installed packages. This module knows no group by name, and no torch.
"""

from __future__ import annotations

import sys
import weakref
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

from paddock.errors import ConfigError, MachineError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_modules: dict[str, None] = {}
"""Modules outside this package that registered something in this process, in their order, and places of objects that
its program has named (`allow`)."""

PROGRAM = "program:"
"""How the place of an object begins that this process alone has."""
_lent: dict[str, Any] = {}
"""Such objects, by their places."""


def names(group: str) -> list[str]:
    """What the installed packages bring of a group, such as "devices", by name; nothing of it is imported."""
    return sorted({entry.name for entry in _entries(group)})


def find(group: str, name: str) -> Any:
    """The object that an installed package brings under that name; None if there is none."""
    found = _entries(group, name)
    if not found:
        return None
    if len(found) > 1:
        raise MachineError(
            f'several packages bring "{name}" to paddock.{group}: {", ".join(map(_source, found))}',
            fix="uninstall all but one of them",
        )
    (entry,) = found
    try:
        brought = entry.load()
    except (Exception, SystemExit) as error:  # a foreign package may do anything on import
        raise unusable(group, name, _first_line(error)) from error
    remember(entry.module)
    return brought


def unusable(group: str, name: str, why: str) -> MachineError:
    """The error for what a package brings and cannot be used; the package is named."""
    sources = ", ".join(map(_source, _entries(group, name)))
    return MachineError(
        f'"{name}" of paddock.{group} cannot be used',
        why=f"{sources}: {why}",
        fix="repair, update or uninstall that package",
    )


def remember(module: str) -> None:
    """Note a module that registers something: worker processes then import it before they begin."""
    if not is_ours(module):
        _modules[module] = None


def caller() -> str:
    """The module that called the function which asks: what registers an object that does not know its module."""
    return str(sys._getframe(2).f_globals["__name__"])


def allow(place: str) -> None:
    """Let recipes name the object `package.module:name`, in this process and in those that it starts: a program that
    says so itself has read it."""
    _modules[place] = None


def is_known(module: str) -> bool:
    """Whether a module is of this package, or of one that has registered something here."""
    return is_ours(module) or _package(module) in map(_package, _modules)


def is_ours(module: str) -> bool:
    return _package(module) == "paddock"


def modules_for_workers() -> list[str]:
    """The modules, and places in them, that other processes have to import to know what this one knows."""
    if "__main__" in _modules:
        raise ConfigError(
            "what this script or notebook registers is unknown to other processes",
            why="they import modules by name, and the one that was started has none",
            fix="move the classes that it registers to a file of their own and import that, or use one process",
        )
    return list(_modules)


def import_all(modules: list[str], path: list[str]) -> None:
    """In a worker: import what `modules_for_workers` named, found where the launching process found it."""
    sys.path += [folder for folder in path if folder not in sys.path]
    for module in modules:
        try:
            import_module(module.partition(":")[0])
        except Exception as error:
            raise MachineError(
                f"{module} cannot be imported in a worker process",
                why=_first_line(error),
                fix="it registered something in the process that started this one: let it be imported by its name",
            ) from error
        _modules[module] = None


class Loan:
    """Objects of this process that a recipe can name, for as long as somebody holds this."""

    def __init__(self) -> None:
        self._places: list[str] = []
        weakref.finalize(self, _take_back, self._places)

    def lend(self, thing: object, name: str) -> str:
        """The place by which a recipe finds a thing."""
        for number in count(1):
            place = f"{PROGRAM}{name}" + (f"-{number}" if number > 1 else "")
            if place not in _lent:
                _lent[place] = thing
                self._places.append(place)
                return place
        raise AssertionError("numbers do not end")


def _take_back(places: list[str]) -> None:
    for place in places:
        _lent.pop(place, None)


def object_at(place: str) -> Any:
    """What a place names: what this program lent; or `package.module:name`, if the program that began all this has
    named it itself (`allow`): a recipe or a checkpoint, which may be a stranger's, imports nothing."""
    if place in _lent:
        return _lent[place]
    if place not in _modules:
        raise ConfigError(
            f"{place.removeprefix(PROGRAM)} is code of the program that trained with it",
            why="a recipe, or a checkpoint, cannot bring code, nor have it imported",
            fix="give it to a Trainer again, in Python: Trainer(model=…, train_dataset=…, run_dir=…)",
        )
    module, _, name = place.partition(":")
    try:
        found = import_module(module)
    except Exception as error:  # a foreign module may do anything on import
        fix = "the folder that has it must be among those where Python looks: PYTHONPATH"
        raise ConfigError(f"{place} cannot be imported", why=_first_line(error), fix=fix) from error
    if not hasattr(found, name):
        raise ConfigError(f"{module} has no {name}", fix=did_you_mean(name, list(vars(found))))
    return getattr(found, name)


def _entries(group: str, name: str | None = None) -> list[EntryPoint]:
    from importlib.metadata import entry_points

    entries = entry_points(group=f"paddock.{group}")
    return list(entries if name is None else entries.select(name=name))


def _source(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version} ({entry.value})" if entry.dist else entry.value


def _package(module: str) -> str:
    return module.partition(":")[0].partition(".")[0]


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
