"""Training a recipe: checks and preparation first, then the same work in every process."""

from __future__ import annotations

import math
import sys
from itertools import count
from pathlib import Path
from typing import Any

from paddock.checkpoint.config import CheckpointConfig
from paddock.config.load import merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import Arithmetic, check_recipe
from paddock.errors import ConfigError
from paddock.jobs.origin import check_end, check_labels, check_origin
from paddock.jobs.run_directory import check_run_dir, default_run_dir, make_run_dir
from paddock.jobs.task import build_task, prepare_data
from paddock.jobs.tokenizer_of_weights import with_tokenizer_of_weights
from paddock.launch.environment import under_torchrun
from paddock.launch.nodes import agreed
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
    wanted = run_dir or default_run_dir(name)
    payload: dict[str, Any] = {"recipe": recipe.to_dict(), "number": next(_runs_of_this_process)}
    if under_torchrun():
        return _start(payload, launch, Path(_first_said(payload["number"], str(wanted))))

    def decide() -> str:
        set_up(recipe, arithmetic, wanted)
        return str(wanted)

    # A machine with a filesystem of its own still has to find or build what it reads.
    with agreed(launch, decide, lambda _: prepare_data(recipe)) as decided:
        return _start(payload | {"is_set_up": True}, launch, Path(decided))


_runs_of_this_process = count()
"""Numbers them, in every process and in every attempt alike: by its number an attempt knows a run of the last one."""


def _first_said(number: int, run_dir: str) -> str:
    """Under torchrun every process names the directory by its own clock, in every attempt: the first one counts."""
    from paddock.parallel.attempts import first_said

    return first_said(f"directory of run {number}", run_dir)


def _start(payload: dict[str, Any], launch: LaunchOptions, run_dir: Path) -> Path:
    run("paddock.jobs.train:work", payload | {"run_dir": str(run_dir)}, launch, run_dir, stops_cleanly=True)
    return run_dir


def world_of(launch: LaunchOptions) -> int:
    """How many processes there will be: the user's torchrun decides, if there is one."""
    import os

    return int(os.environ["WORLD_SIZE"]) if under_torchrun() else launch.world_size


def set_up(recipe: Recipe, arithmetic: Arithmetic, run_dir: Path) -> None:
    """What one process does before all begin: weights and data, looked at once, and the run directory."""
    goes_on = continues(recipe.checkpoint, run_dir)
    check_run_dir(run_dir, goes_on)
    begun = check_origin(recipe, run_dir, goes_on)
    prepared = prepare_data(recipe)
    check_labels(recipe, prepared.classes)
    task = build_task(recipe, prepared)
    end = total_steps(recipe, arithmetic, task.training_samples().samples_per_epoch)
    check_end(begun, end, str(run_dir if goes_on else recipe.checkpoint.load), goes_on)
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
    from paddock.checkpoint.agreement import agree
    from paddock.devices import select
    from paddock.jobs.training_run import TrainingRun
    from paddock.launch.stop import StopRequest
    from paddock.parallel.attempts import is_noted, note
    from paddock.parallel.world import join_world

    recipe = recipe_from_dict(payload["recipe"])
    with StopRequest() as stop, join_world(select(recipe.train.device)) as world:
        run_dir = Path(world.share(payload["run_dir"]))
        arithmetic = check_recipe(recipe, world.size)
        begun = f"run {payload['number']} is set up"
        if world.share(str(is_noted(begun))) == "True":
            recipe = restarted(recipe, world.share(str(has_checkpoint(run_dir))) == "True")
        elif not payload.get("is_set_up"):
            agree((lambda: set_up(recipe, arithmetic, run_dir)) if world.speaks else None)
        if world.speaks:
            note(begun)
        TrainingRun(recipe, arithmetic, prepare_data(recipe), run_dir, world, stop).execute()


def restarted(recipe: Recipe, has_checkpoint: bool) -> Recipe:
    """The recipe of an attempt after the first: it goes on in its own directory, if it came to a checkpoint."""
    if not has_checkpoint:
        return recipe
    checkpoint = {"load": "auto", "weights_only": False, "resume": False}
    return recipe_from_dict(merge(recipe.to_dict(), {"checkpoint": checkpoint}))


def has_checkpoint(run_dir: Path) -> bool:
    """Whether there is anything to go on from."""
    from paddock.checkpoint.directory import CheckpointDirectory

    return CheckpointDirectory(run_dir, keep=None, leads=False).latest() is not None


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
