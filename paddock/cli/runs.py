"""`paddock runs list|show|compare|plot|rm|clean`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from paddock.cli.arguments import HELP_FLAGS, parse
from paddock.cli.asking import confirmed
from paddock.cli.pages import room_in_terminal, show_page
from paddock.errors import ConfigError, did_you_mean
from paddock.telemetry import format as show

if TYPE_CHECKING:
    from paddock.reporting.tidying import Plan
    from paddock.telemetry.drawing.plots import Plot

Runs = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN…")]
Folders = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="DIR…")]


@dataclass(frozen=True)
class ListOptions:
    """The runs below runs/, or below other folders: what each is, how it stands, how far it came, and its size.

    A run is running (a process holds its lock), done, stopped (in order: it can go on), failed (its processes ended
    without a word), never began, or damaged.

        paddock runs list
        paddock runs list --state failed stopped --sort size
        paddock runs list /data/experiments --recipe gpt2 --json"""

    folders: Folders = ()
    """Where to look; runs, if none is named."""
    state: tuple[str, ...] = ()
    """Only those in one of these states: running, done, stopped, failed, never-began, damaged."""
    recipe: str | None = None
    """Only those of this recipe, family or task."""
    sort: Literal["newest", "name", "loss", "steps", "speed", "size"] = "newest"
    """What comes first."""
    json: bool = False
    """Print the list as JSON."""


@dataclass(frozen=True)
class ShowOptions:
    """One run, looked at closely: its recipe, layout and data, every attempt with its command and versions, its
    checkpoints, its newest numbers, why it failed, and the commands to go on with it."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run directory."""
    json: bool = False
    """Print it as JSON."""


@dataclass(frozen=True)
class CompareOptions:
    """Runs beside each other: what differs of their recipes, layouts, devices and versions, and the last and the best
    value of every metric.

        paddock runs compare runs/a runs/b runs/c

    Whether two of them are the same training, within a tolerance, is what `paddock align` says."""

    runs: Runs = ()
    """Run directories, or logs."""
    all: bool = False
    """Also what is the same."""
    json: bool = False
    """Print it as JSON."""


@dataclass(frozen=True)
class PlotOptions:
    """Draw a metric of runs: in the terminal, or as a file. Curves of several runs lie over each other.

        paddock runs plot runs/a
        paddock runs plot runs/a runs/b --metric val.loss --x tokens
        paddock runs plot runs/a runs/b --smooth 50 --output loss.svg

    A dotted line marks where a run went on after a stop; steps that were done again are drawn once. Curves that lie on
    each other are drawn one within the other, so that all are seen."""

    runs: Runs = ()
    """Run directories, or logs."""
    metric: str | None = None
    """Which; the training loss, if none is named."""
    x: Literal["step", "tokens", "time"] = "step"
    """The axis: steps, tokens seen, or seconds."""
    smooth: float | None = None
    """Smooth over about so many steps."""
    log: bool = False
    """A logarithmic axis of values."""
    output: Path | None = None
    """Write a picture (.svg, .png), a table (.csv) or .json, instead of drawing here."""
    width: int | None = None
    """Columns of the drawing; None is the terminal's."""
    height: int | None = None
    """Rows of the drawing; None is what the terminal has room for, 20 at most."""
    json: bool = False
    """Print the curves as JSON."""


@dataclass(frozen=True)
class RmOptions:
    """Remove runs, with all that is in their directories. Asks first; a run that is under way is refused.

    paddock runs rm runs/a runs/b
    paddock runs rm runs/a --yes"""

    runs: Runs = ()
    """Run directories."""
    yes: bool = False
    """Do not ask."""
    json: bool = False
    """Print what was removed as JSON."""


@dataclass(frozen=True)
class CleanOptions:
    """Remove what nobody needs: runs that never began, and those that failed before their first checkpoint. Asks first;
    runs that are under way are left alone.

        paddock runs clean --dry-run
        paddock runs clean --checkpoints --yes"""

    folders: Folders = ()
    """Where to look; runs, if none is named."""
    failed: bool = False
    """Also failed runs that have a checkpoint to go on from."""
    checkpoints: bool = False
    """Also checkpoints that are neither the latest nor the best of their run."""
    dry_run: bool = False
    """Say what would go, and how many bytes it has; remove nothing."""
    yes: bool = False
    """Do not ask."""
    json: bool = False
    """Print what was removed, or would be, as JSON."""


VERBS: dict[str, type[Any]] = {
    "list": ListOptions,
    "show": ShowOptions,
    "compare": CompareOptions,
    "plot": PlotOptions,
    "rm": RmOptions,
    "clean": CleanOptions,
}
USAGES = {"show": "RUN", "compare": "RUN RUN…", "plot": "RUN…", "rm": "RUN…"}


def main(arguments: list[str]) -> None:
    wanted, rest = (arguments[0], arguments[1:]) if arguments else ("list", [])
    if wanted in HELP_FLAGS:
        show_page(overview())
    elif wanted in VERBS:
        {"list": list_, "show": show_, "compare": compare, "plot": plot, "rm": rm, "clean": clean}[wanted](rest)
    else:
        raise ConfigError(f'paddock runs has no verb "{wanted}"', fix=did_you_mean(wanted, list(VERBS)))


def overview() -> str:
    """The page behind `paddock runs --help`."""
    lines = ["usage: paddock runs list|show|compare|plot|rm|clean …", "  --help after one of them explains it", ""]
    for verb, options in VERBS.items():
        first = (options.__doc__ or "").split(". ")[0].split(": ")[0]
        usage = f"{verb} {USAGES.get(verb, '[DIR…]')}"
        lines.append(f"  {usage:<18} {' '.join(first.split())}")
    return "\n".join(lines)


def list_(arguments: list[str]) -> None:
    options = parse(ListOptions, "runs list", arguments)
    from paddock.jobs.runs import list_runs, places_of_runs
    from paddock.reporting.text import list_page

    found = list_runs(options.folders, states=options.state, recipe=options.recipe, sort=options.sort)
    if options.json:
        print(json.dumps([run.to_dict() for run in found], ensure_ascii=False))
    elif found:
        print(list_page(found, room_in_terminal()))
    else:
        where, asks = " or ".join(places_of_runs(options.folders)), options.state or options.recipe
        print(f"there is no run in {where}" + (" of that kind" if asks else ""), file=sys.stderr)


def show_(arguments: list[str]) -> None:
    options = parse(ShowOptions, "runs show", arguments)
    from paddock.reporting.details import look_at
    from paddock.reporting.text import run_page
    from paddock.telemetry.records import plain

    found = look_at(options.run)
    if options.json:
        print(json.dumps(plain(found.to_dict()), ensure_ascii=False))
    else:
        show_page(run_page(found))


def compare(arguments: list[str]) -> None:
    options = parse(CompareOptions, "runs compare", arguments)
    from paddock.jobs.runs import compare_runs
    from paddock.reporting.text import compare_page
    from paddock.telemetry.records import plain

    found = compare_runs(options.runs)
    if options.json:
        print(json.dumps(plain(found.to_dict()), ensure_ascii=False))
        return
    print(compare_page(found, options.all))
    for name in found.silent:
        print(f"note: {name} says nothing of its recipe", file=sys.stderr)


def plot(arguments: list[str]) -> None:
    options = parse(PlotOptions, "runs plot", arguments)
    from paddock.reporting.figures import View

    view = View(options.x, options.smooth, options.log)
    if options.output is None and not options.json:
        from paddock.jobs.runs import plot_runs

        draw(plot_runs(options.runs, options.metric, view), options.width, options.height)
        return
    from paddock.jobs.report import form_of, print_report, report_runs, save_report

    form = "json" if options.output is None else form_of(options.output, None)
    for name in ("width", "height"):
        if getattr(options, name) is not None:
            raise ConfigError(
                f"--{name} would be ignored", why="it is of the drawing in a terminal", fix="leave it out"
            )
    report = report_runs(options.runs, [options.metric] if options.metric else [], view, form)
    report = report if options.metric else report.of_loss()
    if options.output is None:
        print_report(report, form, sys.stdout)
    else:
        save_report(report, form, options.output)
        print(f"written: {options.output}", file=sys.stderr)


def draw(plot: Plot, width: int | None, height: int | None) -> None:
    """Draw on standard output, in colour if that is a terminal and nobody objects."""
    from rich.console import Console

    from paddock.telemetry.drawing.characters import Look, draw_characters

    size = shutil.get_terminal_size()
    has_colors = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    encoding = (sys.stdout.encoding or "ascii").casefold()
    look = Look(
        width or min(size.columns, 140),
        height or max(6, min(20, size.lines - 6)),
        has_colors,
        encoding.startswith("utf"),
    )
    console = Console(file=sys.stdout, width=max(look.width, 1), highlight=False)
    for line in draw_characters(plot, look):
        if has_colors:
            console.print(line, soft_wrap=True)
        else:
            print(line.plain.rstrip())


def rm(arguments: list[str]) -> None:
    options = parse(RmOptions, "runs rm", arguments)
    from paddock.reporting.tidying import plan_rm

    remove(plan_rm(options.runs), "runs rm", yes=options.yes, as_json=options.json)


def clean(arguments: list[str]) -> None:
    options = parse(CleanOptions, "runs clean", arguments)
    from paddock.jobs.runs import places_of_runs
    from paddock.reporting.tidying import plan_clean

    places = places_of_runs(options.folders)
    plan = plan_clean(places, failed=options.failed, checkpoints=options.checkpoints)
    for line in plan.left:
        print(f"left alone: {line}", file=sys.stderr)
    if options.dry_run or not plan.removals:
        tell_plan(plan, "would go" if options.dry_run else "nothing to remove", options.json)
    else:
        remove(plan, "runs clean", yes=options.yes, as_json=options.json)


def tell_plan(plan: Plan, verdict: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan.to_dict(), ensure_ascii=False))
        return
    from paddock.reporting.text import plan_lines

    for line in plan_lines(plan):
        print(line)
    print(f"{show.bytes_(plan.bytes)} {verdict}" if plan.removals else "nothing to remove")


def remove(plan: Plan, verb: str, *, yes: bool, as_json: bool) -> None:
    """Remove what is planned, if it is wanted."""
    from paddock.reporting.text import plan_lines
    from paddock.reporting.tidying import carry_out

    if not (yes or confirmed(verb, plan_lines(plan), plan.bytes, has_dry_run=verb != "runs rm")):
        print("nothing was removed", file=sys.stderr)
        return
    done = []
    for removal in carry_out(plan):
        done.append(removal)
        if not as_json:
            print(f"removed {removal.path} ({show.bytes_(removal.bytes)})")
    if as_json:
        print(json.dumps({**plan.to_dict(), "removals": [removal.to_dict() for removal in done]}, ensure_ascii=False))
