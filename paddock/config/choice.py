"""The recipe that somebody chooses in Python: by a name or a file, with fields changed by dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.arguments import check_type
from paddock.config.load import find_recipe, merge, read_values, zoo
from paddock.config.overrides import field_kinds
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, bad_value, nearest, shown
from paddock.tasks.registry import task_called


def chosen_values(
    model: str | None, recipe: str | Path | None, args: str | Path | Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    """The values that one of three ways to name a recipe gives, and a name for the run."""
    ways = {"model": model, "recipe": recipe, "args": args}
    given = [name for name, value in ways.items() if value is not None]
    if isinstance(args, Mapping) and len(given) == 2:  # a dictionary changes what the other one names
        name, values = chosen_values(model, recipe, None)
        return name, merge(values, as_sections(args))
    if len(given) != 1:
        raise ConfigError(
            f"{' and '.join(given)} name a recipe" if given else "no model is named",
            fix="give one of model, recipe and args",
        )
    if isinstance(args, Mapping):
        values = dict(args)
        parent = values.pop("extends", None)
        base = {} if parent is None else read_values(find_recipe(str(parent)))
        return "trainer", merge(base, as_sections(values))
    name = str(next(value for value in ways.values() if value is not None))
    return name, read_values(find_recipe(name))


def check_known(unknown: Mapping[str, object], known: Sequence[str]) -> None:
    """Raise ConfigError for an argument that a trainer does not have; of a field of the recipe, with where it goes."""
    for name, value in unknown.items():
        fields = [field for field in field_kinds(Recipe) if field.rpartition(".")[2] == name]
        near = nearest(name, [*known])
        ways = " or ".join(f'overrides={{"{field}": {shown(repr(value))}}}' for field in fields)
        raise ConfigError(
            f"{name}: a Trainer has no such argument",
            why="it is a field of the recipe" if fields else "",
            fix=ways or near or 'fields of the recipe go into overrides, such as overrides={"train.steps": 100}',
        )


def check_named(task: str) -> None:
    """Raise ConfigError for a recipe's name where the task is wanted, which is the first argument; and for no task."""
    try:
        find_recipe(task)
    except ConfigError:
        task_called(task)
    else:
        raise ConfigError(
            f"{task} is given as the task, which is the first argument",
            why="it is the name of a recipe",
            fix=f'Trainer(model="{task}")',
        )


def check_task(wanted: str, own: str, name: str) -> None:
    """Raise ConfigError for a recipe that is for another task than the one that is wanted."""
    if wanted != own:
        fitting = [entry.name for entry in zoo() if entry.task == wanted]
        raise bad_value(
            "task",
            wanted,
            f"{name} is a recipe for {own}",
            f"leave the task out, or choose a model from: {', '.join(fitting)}",
        )


def as_sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as sections: {"train.steps": 1} and {"train": {"steps": 1}} are the same."""
    sections: dict[str, Any] = {}
    for name, value in values.items():
        check_type("the name of a field", name, str, fix='such as {"train.steps": 100}')
        *path, last = name.split(".")
        entry: dict[str, Any] = {last: dict(value) if isinstance(value, Mapping) else value}
        for part in reversed(path):
            entry = {part: entry}
        sections = merge(sections, entry)
    return sections
