"""`--help SECTION`: the flags of one section of a recipe, with the words that other systems have for them."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from paddock.cli.mirror import documentation, metavar_of
from paddock.cli.pages import room_in_terminal
from paddock.config.flags.translation import alias_flags
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, did_you_mean

HELP_FLAGS = ("-h", "--help")
WIDTH = 100


def asked_section(arguments: Sequence[str]) -> str | None:
    """The word behind --help, if there is one."""
    at = next((place for place, word in enumerate(arguments) if word in HELP_FLAGS), len(arguments))
    return arguments[at + 1] if at + 1 < len(arguments) and not arguments[at + 1].startswith("-") else None


def section_page(recipe: Recipe, name: str) -> str:
    """What `--help` prints of one section."""
    sections = {key: value for key, value in recipe if isinstance(value, BaseModel)}
    if name not in sections:
        raise ConfigError(f'a recipe has no section "{name}"', fix=did_you_mean(name, list(sections)))
    about = inspect.cleandoc(type(sections[name]).__doc__ or "")
    return "\n".join([f"{name}: {about}", "", *_flags(recipe, name, sections[name])])


def _flags(recipe: Recipe, name: str, section: BaseModel) -> Iterator[str]:
    meanings, aliases = documentation(type(section)), alias_flags(recipe)
    width = min(WIDTH, room_in_terminal() or WIDTH)
    for key, field in type(section).model_fields.items():
        flag, value = f"--{name}.{(field.alias or key).replace('_', '-')}", getattr(section, key)
        others = [other for other, alias in aliases.items() if alias.means == flag]
        switch = field.annotation is bool
        yield f"  {flag}" + (
            f" / --{name}.no-{key.replace('_', '-')}" if switch else f" {metavar_of(field.annotation)}"
        )
        told = f"{meanings.get(key, '')} (default: {value})" + (f" Also {', '.join(others)}." if others else "")
        yield from (f"      {line}" for line in textwrap.wrap(told, width - 6))
