"""`paddock resume RUN`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from paddock.cli.arguments import HELP_FLAGS, apply_flags
from paddock.cli.sections import asked_section
from paddock.config.load import load_recipe, load_without_validation
from paddock.errors import ConfigError

SUBJECT = "RUN"


@dataclass(frozen=True)
class ResumeOptions:
    """Go on with a run that was stopped or killed, or train one further that has finished.

    RUN is a run directory. It goes on from its newest checkpoint, with its own recipe and as many processes as it had.
    Every field of the recipe and the launch flags can be given anew, as in `paddock train`; what is then otherwise is
    shown, and what would make samples repeat is refused unless --checkpoint.allow-changes says so.

    paddock resume runs/tour

    paddock resume runs/tour --train.steps 2000

    paddock resume runs/tour --nproc-per-node 2 --optimizer.lr 1e-4"""

    json: bool = False
    """Print the result as JSON, as `paddock train` does; without this, the run directory alone."""


def main(arguments: list[str]) -> int:
    if any(flag in arguments for flag in HELP_FLAGS):
        config = Path(arguments[0]) / "config.yaml"
        recipe = load_recipe(config) if config.is_file() else load_without_validation("gpt2")
        section = asked_section(arguments)
        asked = ["--help"] if section is None else ["--help", section]
        apply_flags(ResumeOptions, "resume", SUBJECT, recipe, asked, SUBJECT)
    if not arguments or arguments[0].startswith("-"):
        raise ConfigError(
            "paddock resume needs a run" + (", before the flags" if arguments else ""), fix="paddock resume RUN [flags]"
        )
    from paddock.cli.train import show_outcome
    from paddock.jobs.resume import find_run, saved_launch, saved_recipe
    from paddock.jobs.train import train

    run, flags = find_run(arguments[0]), arguments[1:]
    saved = saved_launch(run)
    command = apply_flags(ResumeOptions, "resume", str(run), saved_recipe(run), flags, SUBJECT, saved)
    launch = command.launch
    asks_threads = any(word.partition("=")[0] == "--threads" for word in flags)
    if launch.nproc_per_node != saved.nproc_per_node and not asks_threads:
        launch = replace(launch, threads=None)  # which was the share of another number of processes
    outcome = train(command.name, command.recipe, launch, run, resumes=True)
    return show_outcome(outcome, command.options.json)
