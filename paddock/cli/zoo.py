"""`paddock zoo list|show|new|check|wrap`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from paddock.cli.arguments import HELP_FLAGS, parse
from paddock.cli.pages import room_in_terminal, show_page
from paddock.errors import ConfigError, bad_value, did_you_mean
from paddock.telemetry.format import count

if TYPE_CHECKING:
    from paddock.zoo.catalogue import CatalogueEntry
    from paddock.zoo.check import CheckPlan

GIBIBYTE = 2**30


@dataclass(frozen=True)
class ListOptions:
    """The recipes that come with Paddock: what each is for, how large its model is, the layouts that were proven to
    give its loss, the devices that agree with the CPU, what training reached, and what else it is called.

    Any of the names works wherever a recipe is asked for, and as the Trainer's model."""

    task: str | None = None
    """Only those of this task."""
    json: bool = False
    """Print the list as JSON."""


@dataclass(frozen=True)
class ShowOptions:
    """What is known of a recipe that comes with Paddock: every layout and device that it was proven on and what
    training reached, each with the command that showed it."""

    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RECIPE")]
    """Any of its names."""
    json: bool = False
    """Print it as JSON."""


@dataclass(frozen=True)
class NewOptions:
    """Make the folder of a contribution from a recipe, as the ModelZoo asks for it: requirements.txt, README.md,
    run_scripts/ (run_NAME.py, argument.py, formate_cmd.py, README.md), model.yaml. It trains as it is:

        paddock zoo new my_gpt2 --from gpt2/tiny
        python my_gpt2/run_scripts/run_my_gpt2.py --model_name my_gpt2 --step 2

    What only you can know stands there as TODO."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Small letters, digits and _."""
    from_: Annotated[str, tyro.conf.arg(name="from")]
    """The recipe that it begins from: a shipped name, or a YAML file."""
    folder: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="DIR")] = None
    """Where; NAME, if it is left out."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class CheckOptions:
    """Check a contribution: its files (structure, README, parameters, requirements, no paths of one machine, debuggers
    or secrets), then every case of its model.yaml, for its few steps, in a sandbox: exit status, a unified log with
    train.loss and train.ips, a finite loss that falls where the case says so. Exit code 7 if anything is wrong.

        paddock zoo check my_gpt2 --device cpu --junit report.xml --markdown report.md

    The sandbox limits time, memory, disk, processes and output, gives a clean environment, and ends what a script
    starts. It runs as you, with your network: check what strangers send in a container, too."""

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR|model.yaml")]
    """The folder of a contribution, or a model.yaml."""
    device: str | None = None
    """The device to run cases on, in place of their own."""
    steps: int | None = None
    """Steps to run, in place of the cases' own."""
    static: bool = False
    """Look at the files alone; nothing is run, and the report says so."""
    dataset_root: Path | None = None
    """Where datasets are that are no part of the contribution: dataset_path is looked for here, too."""
    root: Path | None = None
    """Where the run_dir of cases begins; the folder of the model.yaml, if it is left out."""
    index: str | None = None
    """The package index to ask for requirements that are not installed; $PIP_INDEX_URL or PyPI, if it is left out."""
    env: tuple[str, ...] = ()
    """Names of variables that scripts get beside a clean environment, such as those of a vendor's toolkit."""
    time_limit: float = 600.0
    """Seconds that a case may take."""
    memory_limit: float | None = None
    """GiB that a case may use; 16, or four fifths of the machine's memory if that is less."""
    disk_limit: float = 4.0
    """GiB that a case may write."""
    junit: Path | None = None
    """Write the report here as JUnit XML."""
    markdown: Path | None = None
    """Write the report here as Markdown, for a pull request."""
    json: bool = False
    """Print the report as JSON."""

    def plan(self) -> CheckPlan:
        """What to check, and how; a ConfigError for what would be ignored or cannot be."""
        from paddock.zoo.cases import RunOptions
        from paddock.zoo.check import CheckPlan
        from paddock.zoo.sandbox import Limits

        for flag in ("device", "steps", "dataset_root"):
            if self.static and getattr(self, flag) is not None:
                raise ConfigError(f"--{flag.replace('_', '-')} is for running, and would be ignored by --static")
        for flag in ("time_limit", "memory_limit", "disk_limit"):
            limit = getattr(self, flag)
            if limit is not None and not 0 < limit < 1e9:
                raise bad_value(f"--{flag.replace('_', '-')}", limit, "it is more than 0, and not without end")
        for flag in ("junit", "markdown"):
            path = getattr(self, flag)
            if path is not None and not path.parent.is_dir():  # said before the cases run, not after
                raise bad_value(f"--{flag}", path, "its folder is not there", "make it first")
        if self.steps is not None and self.steps < 1:
            raise bad_value("--steps", self.steps, "a case runs for at least one step")
        memory = {} if self.memory_limit is None else {"memory": round(self.memory_limit * GIBIBYTE)}
        limits = Limits(seconds=self.time_limit, disk=round(self.disk_limit * GIBIBYTE), **memory)
        run = RunOptions(self.device, self.steps, self.dataset_root, limits, self.env)
        return CheckPlan(self.path, self.root, None if self.static else run, self.index)


@dataclass(frozen=True)
class WrapOptions:
    """Run a training script as it is, and make a unified log of what it prints.

        paddock zoo wrap train.py -- --epochs 1
        paddock zoo wrap train.py --pattern 'train.loss=cost is ([\\d.]+)' --samples-per-step 32 -- --epochs 1

    Lines such as `loss: 0.5`, `Epoch 1 step 10/100 loss=0.5`, `{'loss': 0.5}` and `Epoch: [0][10/100] Loss 6.9` are
    understood: loss, learning rate, speed, step and epoch; of validation, loss and accuracy, too. What it prints is
    passed on, and so is its exit status."""

    script: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SCRIPT")]
    """A Python file, or a program, such as torchrun. What it is called with comes behind --."""
    run_dir: Path | None = None
    """Where its metrics.jsonl goes; default runs/<script>-<time>."""
    pattern: tuple[str, ...] = ()
    """NAME=REGULAR EXPRESSION: where a number is that is not found otherwise, or not the right one. NAME is epoch,
    step, train.… or val.…; the group of the expression is the number."""
    samples_per_step: int | None = None
    """Samples of a step over all processes: where the script prints no speed, it is measured by its lines."""


def main(arguments: list[str]) -> int | None:
    verbs: dict[str, Callable[[list[str]], int | None]] = {
        "list": show_list,
        "show": show_one,
        "new": make_new,
        "check": check,
        "wrap": wrap,
    }
    wanted, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if wanted in HELP_FLAGS:
        show_page(overview())
        return None
    if wanted in verbs:
        return verbs[wanted](rest)
    raise ConfigError(
        f'paddock zoo has no verb "{wanted}"' if wanted else "paddock zoo needs to know what to do",
        fix=did_you_mean(wanted, list(verbs)),
    )


def overview() -> str:
    """The page behind `paddock zoo --help`."""
    pages = {
        "list": ListOptions,
        "show RECIPE": ShowOptions,
        "new NAME --from RECIPE [DIR]": NewOptions,
        "check DIR|model.yaml": CheckOptions,
        "wrap SCRIPT -- ARGUMENTS": WrapOptions,
    }
    lines = ["usage: paddock zoo list|show|new|check|wrap …", "  --help after one of them explains it", ""]
    for usage, options in pages.items():
        first = inspect.cleandoc(options.__doc__ or "").partition(".")[0].partition(":")[0].replace("\n", " ")
        lines.append(f"  {usage:<29} {first}")
    return "\n".join(lines)


def show_list(arguments: list[str]) -> None:
    """Print the recipes that were asked for."""
    options = parse(ListOptions, "zoo list", arguments)
    from paddock.reporting.text import table
    from paddock.zoo.catalogue import catalogue

    everything = catalogue()
    tasks = sorted({entry.recipe.task for entry in everything})
    if options.task is not None and options.task not in tasks:
        raise ConfigError(
            f"--task {options.task}", why="no recipe has this task", fix=did_you_mean(options.task, tasks)
        )
    entries = [entry for entry in everything if options.task in (None, entry.recipe.task)]
    if options.json:
        print(json.dumps([entry.to_dict() for entry in entries]))
        return
    rows = [
        (
            entry.recipe.name,
            entry.recipe.task,
            count(entry.recipe.parameters),
            entry.layouts() or "–",
            " ".join(entry.named("device")) or "–",
            entry.headline() or "–",
            " ".join(entry.recipe.aliases),
        )
        for entry in entries
    ]
    head = ("recipe", "task", "size", "layouts proven", "devices aligned", "result", "also called")
    print("\n".join(table([head, *rows], right=(2,), expendable=(6, 4, 3, 5), room=room_in_terminal())))


def show_one(arguments: list[str]) -> None:
    options = parse(ShowOptions, "zoo show", arguments)
    from paddock.zoo.catalogue import find_entry

    entry = find_entry(options.recipe)
    if options.json:
        print(json.dumps(entry.to_dict()))
    else:
        show_page(entry_page(entry))


def entry_page(entry: CatalogueEntry) -> str:
    """All that is known of a recipe, for people."""
    recipe = entry.recipe
    lines = [
        f"{recipe.name}: {recipe.family}, {recipe.parameters:,} parameters ({count(recipe.parameters)})",
        f"task       {recipe.task}",
        f"also       {' '.join(recipe.aliases) or '–'}",
    ]
    titles = {"layout": "layouts proven", "device": "devices aligned", "metric": "results"}
    for kind, title in titles.items():
        results = [result for result in entry.results if result.kind == kind]
        lines += ["", title if results else f"{title}: none yet"]
        width = max((len(result.name) for result in results), default=0)
        for result in results:
            value = f"{result.value:.1e}" if kind != "metric" else f"{result.value:g}"
            where = f"{result.machine}, torch {result.torch}, {result.date}"
            lines.append(f"  {result.name:<{width}}  {value:>9}  {result.detail} in {result.precision}, {where}")
        lines += [f"  shown by: {command}" for command in dict.fromkeys(result.command for result in results)]
    return "\n".join(lines)


def make_new(arguments: list[str]) -> None:
    options = parse(NewOptions, "zoo new", arguments)
    from paddock.zoo.scaffold import new_contribution

    folder = new_contribution(options.name, options.from_, options.folder)
    script = folder / "run_scripts" / f"run_{options.name}.py"
    if options.json:
        print(json.dumps({"folder": str(folder), "script": str(script)}))
        return
    print(folder)
    print(
        f"try:  python {script} --model_name {options.name} --step 2\n      paddock zoo check {folder}", file=sys.stderr
    )


def check(arguments: list[str]) -> None:
    options = parse(CheckOptions, "zoo check", arguments)
    from paddock.files import atomic_write
    from paddock.zoo.check import check_contribution
    from paddock.zoo.report import junit, markdown, page

    report = check_contribution(options.plan(), lambda text: print(text, file=sys.stderr, flush=True))
    for path, form in ((options.junit, junit), (options.markdown, markdown)):
        if path is not None:
            with atomic_write(path) as stream:
                stream.write(form(report))
    print(
        json.dumps(report.to_dict(), ensure_ascii=False, allow_nan=False) if options.json else page(report), flush=True
    )
    report.raise_if_failed()


def wrap(arguments: list[str]) -> int:
    own, passed_on = arguments, []
    if "--" in arguments:
        position = arguments.index("--")
        own, passed_on = arguments[:position], arguments[position + 1 :]
    options = parse(WrapOptions, "zoo wrap", own)
    from paddock.zoo.patterns import LineReader, parse_patterns
    from paddock.zoo.wrap import command_of
    from paddock.zoo.wrap import wrap as run_wrapped

    if options.samples_per_step is not None and options.samples_per_step < 1:
        raise bad_value("--samples-per-step", options.samples_per_step, "a step has at least one")
    reader = LineReader(parse_patterns(options.pattern))
    command = command_of(options.script, passed_on)
    log = (options.run_dir or _new_run_dir(options.script)) / "metrics.jsonl"
    if log.exists():
        raise ConfigError(f"{log} is there already", why="two runs would mix in it", fix="choose another --run-dir")
    streams = (sys.stdout, sys.stderr)
    done = run_wrapped(command, log, reader, streams, options.samples_per_step)
    told = f"{done.num_records} record{'s' if done.num_records > 1 else ''} in {done.log}"
    if not done.num_records:
        told = f"no numbers were found in what it printed: name them with --pattern; {done.log} is empty"
    print(told, file=sys.stderr)
    return done.status


def _new_run_dir(script: str) -> Path:
    from paddock.training.run_directory.directory import new_run_dir  # which needs torch, and a script may need none

    return new_run_dir(Path(script).stem)
