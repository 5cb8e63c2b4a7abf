"""`paddock evaluate RUN|RECIPE`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from paddock.cli.arguments import RecipeCommand, apply_flags, parse_recipe_command
from paddock.config.load import load_recipe
from paddock.config.recipe import Recipe
from paddock.launch.options import LaunchOptions
from paddock.parallel.config import ParallelConfig
from paddock.telemetry.format import duration

SUBJECT = "RUN|RECIPE"


@dataclass(frozen=True)
class EvaluateOptions:
    """What a trained model is worth on the whole validation set: its loss, and what its task measures.

    Give a run directory (its newest checkpoint is taken), or a recipe with --checkpoint.load. Every sample counts
    exactly once, with any number of processes."""

    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    command = _parse(arguments)
    show_evaluation(command.recipe, command.launch, command.options.json)


def show_evaluation(recipe: Recipe, launch: LaunchOptions, as_json: bool) -> None:
    """Evaluate and print."""
    from paddock.jobs.evaluate import evaluate

    result = evaluate(recipe, launch)
    if result is None:  # this is not the main process
        return
    if as_json:
        print(json.dumps(result))
        return
    apart = ("val.samples", "val.ips")
    numbers = [f"{name} {value:.4f}" for name, value in result.items() if name.startswith("val.") and name not in apart]
    print(f"{'  '.join(numbers)}  ({result['val.samples']} samples)", flush=True)
    print(f"{result['checkpoint']}: {duration(result['seconds'])}", file=sys.stderr)


def _parse(arguments: list[str]) -> RecipeCommand[EvaluateOptions]:
    config = Path(arguments[0]) / "config.yaml" if arguments else None
    if config is None or not os.path.isfile(config):
        return parse_recipe_command(EvaluateOptions, "evaluate", arguments, subject=SUBJECT)
    recipe = load_recipe(config)
    trained = recipe.checkpoint.model_copy(update={"load": arguments[0]})
    # Weights have no layout: whatever the run was trained in, an evaluation has the layout that its own flags say.
    recipe = recipe.model_copy(update={"checkpoint": trained, "parallel": ParallelConfig()})
    return apply_flags(EvaluateOptions, "evaluate", arguments[0], recipe, arguments[1:], SUBJECT)
