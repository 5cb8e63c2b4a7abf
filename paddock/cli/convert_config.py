"""`paddock convert-config FILE`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from paddock.cli.arguments import parse
from paddock.config.foreign.conversion import Conversion, convert
from paddock.config.foreign.overriding import take_overrides
from paddock.config.load import find_recipe, recipe_of_conversion
from paddock.config.plain_yaml import write_plain_yaml
from paddock.errors import ConfigError, shown
from paddock.files import atomic_write, nearest_path, user_path
from paddock.objects.address import is_address


@dataclass(frozen=True)
class ConvertConfigOptions:
    """Turn the config of another system into a recipe, and say of every key what became of it.

        paddock convert-config configs/gpt2/run_gpt2_13b.yaml --output gpt2_13b.yaml
        paddock convert-config projects/MT5/configs/mt5_pretrain.py train.dist.tensor_parallel_size=1 > mt5.yaml

    FILE is a YAML file of MindFormers, with the files that its base_config names, or a Python config of LiBai, which is
    read and never executed. KEY=VALUE behind it changes a key first. The recipe goes to standard output or --output,
    the account to standard error. A key that would mean something else here is an error. `paddock train FILE` does
    the same and trains."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")]
    """The config."""
    output: Path | None = None
    """Where the recipe goes; it must not exist yet. Default: standard output."""
    json: bool = False
    """Print system, recipe and account as JSON."""


def main(arguments: list[str]) -> None:
    overrides, others = take_overrides(arguments)
    options = parse(ConvertConfigOptions, "convert-config", others)
    if options.output is not None and os.path.lexists(options.output):
        raise ConfigError(f"{options.output} is there already", fix="give --output another name, or remove it")
    if not is_address(options.file) and not os.path.exists(place := user_path(options.file)):
        usual = "name a YAML file of MindFormers or a Python config of LiBai"
        raise ConfigError(f"there is no config {shown(options.file)}", fix=nearest_path(place) or usual)
    conversion = convert(find_recipe(options.file), overrides)
    if not options.json:
        print(account_page(conversion), file=sys.stderr)
    conversion.check()
    recipe_of_conversion(conversion)  # it must be one before anybody keeps it
    text = as_recipe(conversion)
    if options.output is not None:
        with atomic_write(options.output) as stream:
            stream.write(text)
    if options.json:
        print(json.dumps(to_dict(conversion), default=str))
    elif options.output is None:
        print(text, end="")
    if options.output is not None:
        print(f"next: paddock check config {options.output}", file=sys.stderr)


def account_page(conversion: Conversion) -> str:
    """Every key with what became of it."""
    unread = [f"not read  {place}" for place in conversion.unread]
    lines = [f"{line.outcome:<9} {line}" for line in conversion.lines]
    return "\n".join([f"{conversion.path} is a config of {conversion.system}", *lines, *unread])


def as_recipe(conversion: Conversion) -> str:
    """The recipe as a file, one line a section, with where it comes from."""
    head = f"# From {conversion.path.name} ({conversion.system}), by paddock convert-config.\n"
    return head + write_plain_yaml(conversion.recipe)


def to_dict(conversion: Conversion) -> dict[str, object]:
    keys = [line.to_dict() for line in conversion.lines]
    return {"system": conversion.system, "recipe": conversion.recipe, "keys": keys, "unread": conversion.unread}
