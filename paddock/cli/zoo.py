"""`paddock zoo list`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from paddock.cli.arguments import HELP_FLAGS, parse
from paddock.config.load import zoo
from paddock.errors import ConfigError, did_you_mean
from paddock.telemetry.format import count

VERBS = {"list": "the recipes that come with Paddock, with task, parameters and other names"}


@dataclass(frozen=True)
class ListOptions:
    """The recipes that come with Paddock: what each is for, how large its model is, and what else it is called.

    Any of the names works wherever a recipe is asked for, and as the Trainer's model."""

    task: str | None = None
    """Only those of this task."""
    json: bool = False
    """Print the list as JSON."""


def main(arguments: list[str]) -> None:
    wanted, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if wanted in HELP_FLAGS:
        print(f"usage: paddock zoo list …    --help after it explains it\n\n  list   {VERBS['list']}")
    elif wanted in VERBS:
        show_list(parse(ListOptions, "zoo list", rest))
    else:
        raise ConfigError(
            f'paddock zoo has no verb "{wanted}"' if wanted else "paddock zoo needs to know what to do",
            fix=did_you_mean(wanted, list(VERBS)),
        )


def show_list(options: ListOptions) -> None:
    """Print the recipes that were asked for."""
    everything = zoo()
    tasks = sorted({entry.task for entry in everything})
    if options.task is not None and options.task not in tasks:
        raise ConfigError(
            f"--task {options.task}", why="no recipe has this task", fix=did_you_mean(options.task, tasks)
        )
    entries = [entry for entry in everything if options.task in (None, entry.task)]
    if options.json:
        print(json.dumps([asdict(entry) for entry in entries]))
        return
    names, purposes = (max(len(getattr(entry, field)) for entry in entries) for field in ("name", "task"))
    for entry in entries:
        size = count(entry.parameters)
        print(f"{entry.name:<{names}}  {entry.task:<{purposes}}  {size:>6}  {' '.join(entry.aliases)}".rstrip())
