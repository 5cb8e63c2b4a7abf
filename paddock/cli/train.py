"""`paddock train RECIPE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.cli.arguments import parse_recipe_command
from paddock.cli.check import show_config


@dataclass(frozen=True)
class TrainOptions:
    """Train the model of a recipe.

    RECIPE is a shipped name such as gpt2/tiny, or a YAML file. Every field of it is a flag below; defaults shown
    are the recipe's. Ctrl-C finishes the step, saves a checkpoint and stops; --checkpoint.load auto goes on."""

    run_dir: Path | None = None
    """Where everything of the run goes; default runs/<recipe>-<time>."""
    dry_run: bool = False
    """Print the resolved recipe, its arithmetic and every rule, and stop."""


def main(arguments: list[str]) -> None:
    command = parse_recipe_command(TrainOptions, "train", arguments)
    if command.options.dry_run:
        show_config(command.recipe, command.launch.world_size, as_json=False)
        return
    from paddock.jobs.train import train

    train(command.name, command.recipe, command.launch, command.options.run_dir)
