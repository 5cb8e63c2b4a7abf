"""The recipes that come with Paddock, as a list to choose from."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.config.load import load_recipe, recipe_names
from paddock.config.names import MODEL_ALIASES


@dataclass(frozen=True)
class ZooEntry:
    """A shipped recipe, for people to choose from."""

    name: str
    task: str
    family: str
    parameters: int
    aliases: tuple[str, ...]


def zoo() -> list[ZooEntry]:
    """Every shipped recipe but the bases, which only others extend."""
    entries = []
    for name in (name for name in recipe_names() if not name.endswith("/base")):
        recipe = load_recipe(name)
        others = tuple(alias for alias, target in MODEL_ALIASES.items() if target == name)
        entries.append(ZooEntry(name, recipe.task, recipe.model.family, recipe.model.num_parameters(), others))
    return entries
