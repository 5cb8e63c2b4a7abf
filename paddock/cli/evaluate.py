"""`paddock evaluate RUN|MODEL|RECIPE`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from paddock.cli.arguments import HELP_FLAGS, RecipeCommand, apply_flags, parse_recipe_command
from paddock.config.measuring import for_measure, recipe_of_weights
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError
from paddock.launch.options import LaunchOptions
from paddock.phases import starting
from paddock.telemetry.format import duration

SUBJECT = "RUN|MODEL|RECIPE"
MEASURES = {"--text": "text_perplexity", "--lambada": "lambada"}
"""Flags that put another task in the place of the recipe's, and name the file that it reads."""


@dataclass(frozen=True)
class EvaluateOptions:
    """What a trained model is worth on the whole validation set: its loss, and what its task measures.

    Give a run directory (its newest checkpoint is taken), a checkpoint, a Hugging Face folder, or a recipe with
    --checkpoint.load. Every sample counts exactly once, with any number of processes. A language model can also be
    measured on a part of its corpus (--split test), on any text (--text) and by LAMBADA (--lambada); with one of the
    last two before --help, the settings of that are listed."""

    text: str | None = None
    """Language models: the perplexity of this file of text, by token, word and byte; --evaluate.stride slides."""
    lambada: str | None = None
    """Language models: LAMBADA, from a file of JSON lines {"text": …}: how often the last word is found; --data.form
    says what counts as found."""
    missed: Path | None = None
    """LAMBADA: write the passages whose last word was not found to this file, as JSON lines."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    if any(flag in arguments for flag in HELP_FLAGS):
        _parse(arguments)
    with starting(int(_value_of(arguments, "--node-rank") not in (None, "0"))):  # torch may be needed to know the flags
        command = _parse(arguments)
        show_evaluation(command.recipe, command.launch, command.options.json, command.options.missed)


def show_evaluation(recipe: Recipe, launch: LaunchOptions, as_json: bool, missed: Path | None = None) -> None:
    """Evaluate and print."""
    with starting(launch.node_rank):
        from paddock.jobs.evaluate import evaluate

        result = evaluate(recipe, launch, missed)
    if result is None:  # this is not the main process
        return
    if as_json:
        print(json.dumps(result))
        return
    apart = ("val.samples", "val.ips")
    numbers = [f"{name} {value:.4f}" for name, value in result.items() if name.startswith("val.") and name not in apart]
    print(f"{'  '.join(numbers)}  ({result['val.samples']} samples)", flush=True)
    checkpoint = result["checkpoint"].removeprefix(os.path.join(os.getcwd(), ""))  # as somebody here would call it
    print(f"{checkpoint} on {result['measured_on']}: {duration(result['seconds'])}", file=sys.stderr)


def _parse(arguments: list[str]) -> RecipeCommand[EvaluateOptions]:
    recipe = recipe_of_weights(arguments[0]) if arguments and not arguments[0].startswith("-") else None
    if recipe is not None:
        recipe = _with_measure(recipe, arguments)
        return apply_flags(EvaluateOptions, "evaluate", arguments[0], recipe, arguments[1:], SUBJECT)
    return parse_recipe_command(
        EvaluateOptions, "evaluate", arguments, lambda recipe: _with_measure(recipe, arguments), SUBJECT
    )


def _with_measure(recipe: Recipe, arguments: list[str]) -> Recipe:
    """The recipe with the task that a flag names. It is looked for before flags are parsed, since the task decides
    which of them there are."""
    given = {flag: path for flag in MEASURES if (path := _value_of(arguments, flag)) is not None}
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are given", why="a model is measured by one thing at a time")
    for flag, path in given.items():
        return for_measure(recipe, MEASURES[flag], path)
    return recipe


def _value_of(arguments: list[str], flag: str) -> str | None:
    for word, following in pairwise([*arguments, ""]):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None
