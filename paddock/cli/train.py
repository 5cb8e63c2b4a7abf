"""`paddock train RECIPE`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.cli.arguments import parse_recipe_command
from paddock.cli.pages import room_in_terminal, show_page
from paddock.errors import STOPPED, ConfigError
from paddock.launch.options import check_world
from paddock.phases import starting
from paddock.streams import outliving_readers
from paddock.telemetry import format as show

if TYPE_CHECKING:
    from paddock.jobs.train import TrainingOutcome
    from paddock.planning.dry_run import DryRun


@dataclass(frozen=True)
class TrainOptions:
    """Train the model of a recipe.

    RECIPE is a shipped name such as gpt2/tiny, a YAML file, or a config of MindFormers or LiBai as it is. Every field
    of it is a flag below; defaults shown are the recipe's. Ctrl-C finishes the step, saves a checkpoint and stops (exit
    code 8); `paddock resume` goes on."""

    run_dir: str | None = None
    """Where everything of the run goes; default runs/<recipe>-<time>. An address, such as s3://bucket/runs/tour: it
    works in runs/tour, and is copied there."""
    dry_run: bool = False
    """Print the resolved recipe, its arithmetic and every rule, and stop."""
    world: int | None = None
    """With --dry-run: build the model as it lies over this many processes, without devices or memory, and print the
    layout with each process's parameters, memory and traffic."""
    rank: int = 0
    """With --dry-run --world: the process to look at."""
    json: bool = False
    """Print the result as JSON: of a run its directory, step, loss, best metrics, and what stopped it, if that was not
    its end; without this, its directory alone."""
    evaluate_only: bool = False
    """Evaluate what --checkpoint.load names, as `paddock evaluate` does, and stop."""
    benchmark_only: bool = False
    """Measure forward passes, as `paddock benchmark` does, and stop."""

    def check(self) -> None:
        """Raise ConfigError for options that would be ignored."""
        instead = [self.dry_run, self.evaluate_only, self.benchmark_only]
        if sum(instead) > 1:
            raise ConfigError("--dry-run, --evaluate-only and --benchmark-only exclude each other", fix="choose one")
        if self.world is not None and not self.dry_run:
            raise ConfigError("--world is for dry runs, and would be ignored", fix="add --dry-run, or leave it out")
        if self.run_dir is not None and (self.evaluate_only or self.benchmark_only):
            raise ConfigError(
                f"--run-dir {self.run_dir} would be ignored", why="nothing is written", fix="leave it out"
            )
        if self.rank and self.world is None:
            raise ConfigError(
                "--rank is for dry runs with --world, and would be ignored", fix="add --dry-run --world N"
            )
        if self.world is not None:
            check_world("--world", self.world)


def main(arguments: list[str]) -> int:
    command = parse_recipe_command(TrainOptions, "train", arguments)
    options = command.options
    options.check()
    if options.evaluate_only:
        from paddock.cli.evaluate import show_evaluation

        show_evaluation(command.recipe, command.launch, options.json)
    elif options.benchmark_only:
        from paddock.cli.benchmark import BenchmarkConfig, measure

        measure(command.recipe, BenchmarkConfig(), command.launch, options.json)
    elif not options.dry_run:
        from paddock.jobs.train import train

        return show_outcome(train(command.name, command.recipe, command.launch, options.run_dir), options.json)
    elif options.world is None:
        from paddock.cli.check import show_config

        show_config(command.recipe, command.launch, options.json)
    else:
        with starting():
            from paddock.planning.dry_run import dry_run

            result = dry_run(command.recipe, options.world, options.rank)
        if options.json:
            print(json.dumps(result.to_dict()))
        else:
            show_page(dry_run_page(command.name, result, room_in_terminal()))
    return 0


def show_outcome(outcome: TrainingOutcome, as_json: bool) -> int:
    """Print what came of a run, in one line and by one process; returns the exit code."""
    from paddock.training.run_directory.directory import outcome_of

    if outcome.is_main:
        place = str(outcome.run_dir)
        told = {"run_dir": place, **outcome_of(outcome.run_dir), "stopped": outcome.stopped_by}
        with outliving_readers():  # a terminal that was closed meanwhile does not make it a failure
            print(json.dumps(told) if as_json else place, flush=True)
    return STOPPED if outcome.interrupted else 0


def dry_run_page(name: str, result: DryRun, room: int | None = None) -> str:
    """The layout, drawn, and what one process holds and does."""
    from paddock.planning.footprint import draw

    recipe, arithmetic, here = result.recipe, result.arithmetic, result.here
    parameters, world = show.count(recipe.model.num_parameters()), arithmetic.layout.world
    lines = [
        f"{name}: {parameters} parameters over {world} process{'es' if world > 1 else ''}",
        f"layout    {arithmetic.layout}, shard {recipe.parallel.shard}, recompute {recipe.parallel.recompute}",
        f"batch     {arithmetic.batch}; {recipe.data.describe_sample()}",
    ]
    if arithmetic.layout.pipeline > 1:
        waits = show.percent(result.bubble)
        lines.append(f"schedule  {recipe.parallel.schedule}: a process waits {waits} of a step for others")
        work = [process.work for process in result.processes]
        busiest = max(work) * len(work)
        lines.append(
            f"balance   {', '.join(map(show.percent, work))} of the work; the busiest {busiest:.2f} × the mean"
        )
    stages = ", ".join(f"stage {stage}" for stage in here.stages)
    sends = ", ".join(f"{show.bytes_(amount)} over {group}" for group, amount in here.sends.items() if amount)
    return "\n".join(
        [
            *lines,
            "",
            *draw(arithmetic, result.processes, room),
            "",
            f"rank {here.rank} has {stages}: {here.parameters:,} parameters",
            f"  weights    {show.bytes_(here.weights)}",
            f"  gradients  {show.bytes_(here.gradients)}",
            f"  optimizer  {show.bytes_(here.optimizer)}",
            f"  together   {show.bytes_(here.memory)} at the most, before activations",
            f"  sends      {sends or 'nothing'}" + (" in a step" if sends else ""),
        ]
    )
