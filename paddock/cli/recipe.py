"""`paddock recipe show|copy`."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml
from pydantic import BaseModel

from paddock.cli.arguments import parse
from paddock.cli.mirror import documentation
from paddock.cli.subverbs import run_subverb
from paddock.config.load import load_recipe
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError
from paddock.files import atomic_write

WIDTH = 100
Name = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]


@dataclass(frozen=True)
class ShowOptions:
    """Print a recipe as readable YAML: every field, what it extends written out, with what each of them means.

    What is printed is itself a recipe, the same one.

        paddock recipe show gpt2/tiny"""

    name: Name
    """A shipped name such as gpt2/tiny, or a YAML file."""
    json: bool = False
    """Print the values as JSON."""


@dataclass(frozen=True)
class CopyOptions:
    """Write a recipe to a file of your own, with every field and what it means, to change and to train.

    paddock recipe copy gpt2/tiny my-model.yaml
    paddock train my-model.yaml"""

    name: Name
    """A shipped name such as gpt2/tiny, or a YAML file."""
    file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """What to write, ending in .yaml; it must not exist yet."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    run_subverb("recipe", {"show": (show, ShowOptions), "copy": (copy, CopyOptions)}, arguments)


def show(arguments: list[str]) -> None:
    options = parse(ShowOptions, "recipe show", arguments)
    recipe = load_recipe(options.name)
    print(json.dumps(recipe.to_dict()) if options.json else explained(recipe, options.name), end="")
    if options.json:
        print()


def copy(arguments: list[str]) -> None:
    options = parse(CopyOptions, "recipe copy", arguments)
    recipe, file = load_recipe(options.name), options.file
    if file.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{file} is no name of a recipe", why="it ends in .yaml", fix=f"{file}.yaml")
    if file.exists():
        raise ConfigError(f"{file} is there already", fix="choose another name, or remove it")
    with atomic_write(file) as stream:
        stream.write(explained(recipe, options.name))
    print(json.dumps({"file": str(file)}) if options.json else file)
    print(f"try:  paddock train {file if file.is_absolute() else Path('.') / file}", file=sys.stderr)


def explained(recipe: Recipe, name: str) -> str:
    """The YAML of a recipe, with its fields' help as comments."""
    return "\n".join([f"# {name}, with every field.", *_fields(recipe, recipe.to_dict(), 0)]) + "\n"


def _fields(section: BaseModel, values: dict[str, Any], depth: int) -> Iterator[str]:
    meanings = documentation(type(section))
    indent = "  " * depth
    for name, field in type(section).model_fields.items():
        key, value = field.alias or name, getattr(section, name)
        if not depth:
            yield ""
        for line in textwrap.wrap(meanings.get(name, ""), WIDTH - len(indent) - 2):
            yield f"{indent}# {line}"
        if isinstance(value, BaseModel):
            yield f"{indent}{key}:"
            yield from _fields(value, values[key], depth + 1)
        else:
            yield f"{indent}{key}: {_plain(values[key])}"


def _plain(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=2**20, allow_unicode=True)
    return text.removesuffix("...\n").rstrip()
