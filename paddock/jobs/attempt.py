"""An attempt of a training run: its directory made and locked, or begun anew, and what is kept there of how it began.

A launcher sets a run up before there are processes; under torchrun rank 0 does. Whoever begins all processes anew after
a failure begins another attempt in the same directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.checkpoint.config import FOLDER, CheckpointConfig
from paddock.checkpoint.names import complete_checkpoints
from paddock.config.load import load_recipe, merge, to_yaml
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import Arithmetic, check_recipe
from paddock.errors import ConfigError
from paddock.files import user_path
from paddock.jobs.stored import kept
from paddock.launch.environment import process_counts
from paddock.launch.facts import flat
from paddock.launch.options import LaunchOptions
from paddock.phases import phase
from paddock.versions import redacted

if TYPE_CHECKING:
    from paddock.parallel.world import World
    from paddock.training.run import TrainingRun


GOES_ON = {"load": "auto", "weights_only": False, "resume": False, "allow_changes": False}
"""What a run's own recipe says of its beginning is over; what it was allowed once it has to be allowed again."""
PRODUCTS = "products"
"""Of a run's environment: how it multiplies matrices."""


@dataclass(frozen=True)
class Job:
    """What is to be trained, checked, before it has a directory."""

    recipe: Recipe
    arithmetic: Arithmetic
    processes: dict[str, int]
    """How many there are, as launch options."""
    resumes: bool
    name: str
    """What the user named: a recipe, or the run that goes on."""
    node_counts: Sequence[int]
    """Numbers of machines on which it can be trained."""
    address: str | None = None
    """Where a copy of its directory is kept, if it is."""


def verb(resumes: bool) -> str:
    return "resume" if resumes else "train"


def asked_of(recipe: Recipe, run_dir: Path | None) -> dict[str, str]:
    """What every machine of a training job is told alike, by names: one that begins the run, and one that comes back
    with `resume`. A folder may lie elsewhere on another machine, under the same name."""
    beginning = {f"checkpoint.{name}" for name in GOES_ON}
    asked = {name: value for name, value in flat(recipe.to_dict()).items() if name not in beginning}
    return asked if run_dir is None else asked | {"--run-dir": run_dir.absolute().name}


def set_up(job: Job, run_dir: Path) -> tuple[int, dict[str, Any]]:
    """What one process does before all begin: weights and data, looked at once, and the run directory, which it has
    locked. Returns the number of the attempt, and what tells the data from others."""
    from paddock.devices import select
    from paddock.planning.concerns import Plan
    from paddock.tasks.registry import build_task, prepare_data
    from paddock.training.preflight import check_end, check_labels, check_origin
    from paddock.training.run import step_limits
    from paddock.training.run_directory.directory import check_run_dir, make_run_dir

    recipe = job.recipe
    goes_on = continues(recipe.checkpoint, run_dir)
    check_run_dir(run_dir, goes_on)
    if goes_on:
        _check_beginning(run_dir)
    origin = check_origin(recipe, run_dir, goes_on)
    with phase("preparing data", at_once=True):
        prepared = prepare_data(recipe)
        check_labels(recipe, prepared.classes)
        task = build_task(recipe, prepared)
    origin.check_samples(recipe, task)
    limits = step_limits(recipe, job.arithmetic, task.training_samples().samples_per_epoch)
    check_end(origin.step, limits, str(run_dir if goes_on else recipe.checkpoint.load), goes_on, job.resumes)
    held_out = None if recipe.evaluate.every is None else len(task.validation_samples())
    steps_per_epoch = task.training_samples().samples_per_epoch / job.arithmetic.batch.total
    plan = Plan(recipe, run_dir, origin.step, min(limits.values()), steps_per_epoch, held_out)
    for concern in plan.concerns(select(recipe.train.device)):
        print(f"warning: {concern}", file=sys.stderr)
    for note in task.notes():
        print(f"note: {note}", file=sys.stderr)
    return make_run_dir(run_dir, to_yaml(recipe), prepared, _environment(job)), dict(task.fingerprint())


def _environment(job: Job) -> dict[str, Any]:
    """What is kept of how a run was started; `paddock resume` starts as many processes again."""
    return {"command": redacted(sys.argv), "recipe": job.name, "processes": job.processes}


def _check_beginning(run_dir: Path) -> None:
    """An error, if a run that began from weights would begin anew from random ones: it has no checkpoint yet."""
    from paddock.training.run_directory.directory import CONFIG

    config = run_dir / CONFIG
    began = load_recipe(config).checkpoint if config.is_file() and not has_checkpoint(run_dir) else None
    if began is not None and began.load not in (None, "auto"):
        raise ConfigError(
            f"{run_dir} has no checkpoint yet to go on from",
            why=f"it was to begin from {began.load}, and would begin from random weights",
            fix=f"begin it again in another --run-dir, with --checkpoint.load {began.load}",
        )


def continues(checkpoint: CheckpointConfig, run_dir: Path) -> bool:
    """Whether this run goes on in its own directory."""
    load = checkpoint.load
    if load is None or load == "auto":
        return load == "auto"
    holds_others = (run_dir / "config.json").is_file()  # a Hugging Face folder, which a run begins from
    return user_path(load).resolve() == run_dir.resolve() and not holds_others


@contextmanager
def begun_attempt(payload: dict[str, Any], recipe: Recipe, world: World) -> Iterator[tuple[Recipe, Path, int]]:
    """Rank 0 holds the run directory, in which a launcher has set up the run, or does so now; an agent that started all
    processes anew begins another attempt. Gives the recipe that this attempt goes by, the directory, and on rank 0 the
    attempt's number."""
    from paddock.checkpoint.storage import run_together
    from paddock.parallel.attempts import is_noted, note
    from paddock.training.run_directory.directory import begin_attempt
    from paddock.training.run_directory.lock import joined, locked

    run_dir, attempt = Path(world.broadcast(payload["run_dir"])), payload.get("attempt", 0)
    topic = f"run {payload['number']} is set up"
    restart = payload.get("restart")  # by our own launcher, which has set up the run; torchrun's counts in its store
    is_restart = restart is not None or world.broadcast(str(is_noted(topic))) == "True"
    if is_restart:
        recipe = restarted(recipe, world.broadcast(str(has_checkpoint(run_dir))) == "True")

    def begin() -> None:
        nonlocal attempt
        if attempt and restart is None:
            stack.enter_context(joined(run_dir))
            return
        stack.enter_context(joined(run_dir) if attempt else locked(run_dir, verb(payload["resumes"])))
        counts = process_counts(LaunchOptions(threads=payload["threads"]))
        resumes, address = payload["resumes"], payload["address"]
        job = Job(recipe, check_recipe(recipe, world.size), counts, resumes, payload["name"], (), address)
        if not attempt:
            stack.enter_context(kept(address, run_dir, verb(resumes), recipe.checkpoint.keep))
        facts = _environment(job) | ({} if restart is None else {"restart": restart})
        attempt = begin_attempt(run_dir, to_yaml(recipe), facts) if is_restart else set_up(job, run_dir)[0]
        if restart is None:
            note(topic)

    with ExitStack() as stack:
        run_together(begin if world.is_main else None)
        yield recipe, run_dir, attempt


@contextmanager
def kept_products(recipe: Recipe, world: World, run_dir: Path, attempt: int) -> Iterator[dict[str, Any]]:
    """Matrix products as the run's first attempt chose them, so that a run that goes on rounds as one that was never
    stopped. What is chosen is kept with the attempt."""
    from paddock.training.run import chosen_products
    from paddock.training.run_directory.directory import earlier_environment, note_environment

    kept = earlier_environment(run_dir, attempt).get(PRODUCTS) if world.is_main else None
    with chosen_products(recipe, world, kept) as products:
        if world.is_main:
            note_environment(run_dir, attempt, {PRODUCTS: products})
        yield products


def note_facts(run: TrainingRun, arithmetic: Arithmetic, attempt: int, threads: int | None) -> None:
    """Keep with the attempt what decides whether two runs can be compared, and is known only now; `threads` are those
    that the launcher decided on."""
    from paddock.training.run_directory.directory import note_environment

    if run.world.is_main:
        facts = {"device": run.world.adapter.name, "total_steps": run.total_steps, "data_position": run.data_position}
        counts = process_counts(LaunchOptions(threads=threads))
        facts |= {"processes": counts, "layout": str(arithmetic.layout)}
        note_environment(run.run_dir, attempt, facts)


def restarted(recipe: Recipe, has_checkpoint: bool) -> Recipe:
    """The recipe of an attempt after the first: it goes on in its own directory, if it came to a checkpoint."""
    if not has_checkpoint:
        return recipe
    checkpoint = {"load": "auto", "weights_only": False, "resume": False}
    return recipe_from_dict(merge(recipe.to_dict(), {"checkpoint": checkpoint}))


def has_checkpoint(run_dir: Path) -> bool:
    """Whether there is anything to go on from."""
    return bool(complete_checkpoints(run_dir / FOLDER))
