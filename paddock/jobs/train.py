"""Training a recipe: checks and preparation first, then the same work in every process."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from paddock.checkpoint.config import CheckpointConfig
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import Arithmetic, check_recipe
from paddock.errors import ConfigError
from paddock.training.origin import check_end, check_labels, check_origin
from paddock.training.run_directory import check_run_dir, default_run_dir, make_run_dir
from paddock.tasks.registry import build_task, prepare_data
from paddock.config.tokenizer_of_weights import with_tokenizer_of_weights
from paddock.launch.environment import under_torchrun
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.parallel.legality import check_device


def train(name: str, recipe: Recipe, launch: LaunchOptions, run_dir: Path | None) -> Path:
    """Train over all the processes that `launch` asks for; returns the run directory."""
    from paddock.devices import select

    launch.check()
    world_size = world_of(launch)
    own, source = recipe.tokenizer, recipe.checkpoint.load
    goes_on = run_dir is not None and continues(recipe.checkpoint, run_dir)
    recipe = with_tokenizer_of_weights(recipe, run_dir if goes_on else source)
    if recipe.tokenizer != own and not goes_on and not under_torchrun():
        print(f"note: the tokenizer is that of {source}", file=sys.stderr)
    arithmetic = check_recipe(recipe, world_size)
    check_device(recipe.parallel, select(recipe.train.device))
    if recipe.checkpoint.load == "auto" and run_dir is None:
        raise ConfigError(
            "checkpoint.load = auto continues a run directory, and none is named", fix="set --run-dir DIR"
        )
    run_dir = run_dir or default_run_dir(name)
    payload: dict[str, Any] = {"recipe": recipe.to_dict(), "run_dir": str(run_dir), "command": sys.argv}
    if not under_torchrun():
        set_up(recipe, arithmetic, run_dir)
        payload["is_set_up"] = True
    run("paddock.jobs.train:work", payload, launch, run_dir, stops_cleanly=True)
    return run_dir


def world_of(launch: LaunchOptions) -> int:
    """How many processes there will be: the user's torchrun decides, if there is one."""
    import os

    return int(os.environ["WORLD_SIZE"]) if under_torchrun() else launch.world_size


def set_up(recipe: Recipe, arithmetic: Arithmetic, run_dir: Path) -> None:
    """What one process does before all begin: weights and data, looked at once, and the run directory."""
    goes_on = continues(recipe.checkpoint, run_dir)
    check_run_dir(run_dir, goes_on)
    origin = check_origin(recipe, run_dir, goes_on)
    prepared = prepare_data(recipe)
    check_labels(recipe, prepared.classes)
    task = build_task(recipe, prepared)
    origin.check_samples(recipe, task)
    end = total_steps(recipe, arithmetic, task.training_samples().samples_per_epoch)
    check_end(origin.step, end, str(run_dir if goes_on else recipe.checkpoint.load), goes_on)
    if recipe.evaluate.every is not None:
        task.validation_samples()
    for note in task.notes():
        print(f"note: {note}", file=sys.stderr)
    make_run_dir(run_dir, recipe, prepared, sys.argv)


def continues(checkpoint: CheckpointConfig, run_dir: Path) -> bool:
    """Whether this run goes on in its own directory."""
    load = checkpoint.load
    return load == "auto" or (load is not None and Path(load).expanduser().resolve() == run_dir.resolve())


def work(payload: dict[str, Any]) -> None:
    """One process's part in a training run."""
    from paddock.devices import select
    from paddock.jobs.training_run import TrainingRun
    from paddock.launch.stop import StopRequest
    from paddock.parallel.world import join_world

    recipe = recipe_from_dict(payload["recipe"])
    with StopRequest() as stop, join_world(select(recipe.train.device)) as world:
        run_dir = Path(world.broadcast(payload["run_dir"]))
        arithmetic = check_recipe(recipe, world.size)
        if not payload.get("is_set_up"):
            if world.is_main:
                set_up(recipe, arithmetic, run_dir)
            world.barrier()
        TrainingRun(recipe, arithmetic, prepare_data(recipe), run_dir, world, stop).execute()


def total_steps(recipe: Recipe, arithmetic: Arithmetic, samples_per_epoch: float) -> int:
    """The step at which the first of the recipe's limits is reached."""
    batch, limits = arithmetic.batch.total, []
    if recipe.train.steps is not None:
        limits.append(recipe.train.steps)
    if recipe.train.samples is not None:
        limits.append(math.ceil(recipe.train.samples / batch))
    if recipe.train.epochs is not None:
        limits.append(math.ceil(recipe.train.epochs * samples_per_epoch / batch))
    return min(limits)
