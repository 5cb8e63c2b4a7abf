"""`paddock check config RECIPE`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from paddock.cli.arguments import parse_recipe_command
from paddock.config.load import to_yaml
from paddock.config.recipe import Recipe
from paddock.config.rules import examine
from paddock.errors import ConfigError, did_you_mean

KINDS = ["config"]


@dataclass(frozen=True)
class CheckOptions:
    """Print the resolved recipe with its arithmetic and every rule checked.

    Exit code 0 if it can run, 2 if a rule is broken. Overrides and launch flags count as they would in training."""

    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in KINDS:
        wanted = arguments[0] if arguments else ""
        if wanted in ("-h", "--help"):
            print("usage: paddock check config RECIPE [flags]\n\n" + (CheckOptions.__doc__ or ""))
            return
        raise ConfigError(
            f'paddock check cannot check "{wanted}"' if wanted else "paddock check needs to know what to check",
            fix=did_you_mean(wanted, KINDS),
        )
    command = parse_recipe_command(CheckOptions, "check config", arguments[1:])
    show_config(command.recipe, command.launch.world_size, command.options.json)


def show_config(recipe: Recipe, world: int, as_json: bool) -> None:
    """Print a recipe and its rules; raises if one is broken."""
    results = examine(recipe, world)
    broken = [result for result in results if not result.holds]
    if as_json:
        rules = [{"rule": result.name, "holds": result.holds, "detail": result.detail} for result in results]
        print(json.dumps({"recipe": recipe.to_dict(), "parameters": recipe.model.num_parameters(), "rules": rules}))
    else:
        print(to_yaml(recipe), end="")
        print(f"\nparameters: {recipe.model.num_parameters():,}")
        for result in results:
            mark = "ok  " if result.holds else "FAIL"
            print(f"{mark} {result.name:<10} " + result.detail.replace("\n", "\n" + " " * 16))
    if broken:
        sys.stdout.flush()
        raise ConfigError(
            f"{len(broken)} rule{'s are' if len(broken) > 1 else ' is'} broken: "
            + ", ".join(result.name for result in broken)
        )
