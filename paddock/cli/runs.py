"""`paddock runs list|show|compare|plot|rm|clean`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from paddock.cli.arguments import HELP_FLAGS, parse
from paddock.errors import ConfigError, did_you_mean
from paddock.telemetry import format as show

if TYPE_CHECKING:
    from paddock.reporting.comparison import Beside
    from paddock.reporting.details import RunDetails
    from paddock.reporting.listing import RunEntry
    from paddock.reporting.tidying import Plan
    from paddock.telemetry.drawing.plots import Plot

LONGEST_REASON = 120
"""Characters of what is damaged, in a list."""
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
        print(overview())
    elif wanted in VERBS:
        {"list": list_, "show": show_, "compare": compare, "plot": plot, "rm": rm, "clean": clean}[wanted](rest)
    else:
        raise ConfigError(f'paddock runs has no verb "{wanted}"', fix=did_you_mean(wanted, list(VERBS)))


def overview() -> str:
    """The page behind `paddock runs --help`."""
    lines = ["usage: paddock runs list|show|compare|plot|rm|clean …    --help after one of them explains it", ""]
    for verb, options in VERBS.items():
        first = (options.__doc__ or "").split(". ")[0].split(": ")[0]
        usage = f"{verb} {USAGES.get(verb, '[DIR…]')}"
        lines.append(f"  {usage:<18} {' '.join(first.split())}")
    return "\n".join(lines)


def list_(arguments: list[str]) -> None:
    options = parse(ListOptions, "runs list", arguments)
    from paddock.jobs.runs import list_runs, places_of_runs

    found = list_runs(options.folders, states=options.state, recipe=options.recipe, sort=options.sort)
    if options.json:
        print(json.dumps([run.to_dict() for run in found], ensure_ascii=False))
    elif found:
        print(list_page(found))
    else:
        where, asks = " or ".join(places_of_runs(options.folders)), options.state or options.recipe
        print(f"there is no run in {where}" + (" of that kind" if asks else ""), file=sys.stderr)


def list_page(runs: Sequence[RunEntry]) -> str:
    """A row for every run, with as many columns as the terminal has room for."""
    head = ["run", "state", "recipe", "steps", "loss", "best", "speed", "size", "age"]
    rows = [head, *(_list_row(run) for run in runs)]
    lines = table(rows, right=(3, 4, 7, 8), expendable=(6, 5, 8, 2, 7))
    damaged = [f"damaged: {run.name}: {shortened(run.why)}" for run in runs if run.state == "damaged"]
    return "\n".join([*lines, *damaged])


def shortened(text: str) -> str:
    """The beginning of what `show` says whole."""
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _list_row(run: RunEntry) -> list[str]:
    from paddock.reporting.page import cells_of

    recipe, state, steps, loss, best, speed, size = cells_of(run)
    age = show.duration(max(round(time.time() - run.changed), 0))
    return [run.name, state, recipe, steps, loss, best, speed, size, age]


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = (), expendable: Sequence[int] = ()) -> list[str]:
    """Rows as lines. On a terminal that is too narrow, columns are left out, the most expendable first."""
    columns = list(range(len(rows[0])))
    widths = [max(len(row[column]) for row in rows) for column in columns]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for column in expendable:
        if room is not None and sum(widths[one] + 2 for one in columns) - 2 > room:
            columns.remove(column)

    def line(row: Sequence[str]) -> str:
        cells = [
            row[column].rjust(widths[column]) if column in right else row[column].ljust(widths[column])
            for column in columns
        ]
        return "  ".join(cells).rstrip()

    return [line(row) for row in rows]


def show_(arguments: list[str]) -> None:
    options = parse(ShowOptions, "runs show", arguments)
    from paddock.reporting.details import look_at
    from paddock.telemetry.records import plain

    found = look_at(options.run)
    print(json.dumps(plain(found.to_dict()), ensure_ascii=False) if options.json else show_page(found))


def show_page(found: RunDetails) -> str:
    """What a run is and has, section by section."""
    from paddock.alignment.comparison.comparability import word
    from paddock.telemetry.logfile import general

    run = found.entry
    steps = f"{run.step:,}" + (f" of {run.total_steps:,}" if run.total_steps else "")
    rows = [("state", run.state + (f": {run.why}" if run.why else "")), ("recipe", run.recipe or "–"), ("steps", steps)]
    if found.holder is not None:
        holder = found.holder
        rows.append(("process", f"{holder.pid} on {holder.host}, since {holder.since}: paddock {holder.verb}"))
    if run.best is not None:
        rows.append(("best", f"{run.measure} {general(run.best)} at step {run.best_step:,}"))
    rows += [(name, word(value)) for name, value in found.facts.items()]
    rows.append(("size", show.bytes_(run.bytes)))
    lines = [run.name, *(f"  {name:<18} {value}" for name, value in rows)]
    if found.last:
        lines += ["", "newest numbers", *(f"  {name:<36} {general(value)}" for name, value in found.last.items())]
    if found.attempts:
        lines += ["", "attempts"]
        for one in found.attempts:
            versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
            count = f"{one.processes} process{'es' if one.processes > 1 else ''}" if one.processes else "unknown"
            lines.append(f"  {one.number:>3}  {count}{f' on {one.device}' if one.device else ''}; {versions}")
            lines += [f"       {one.command}"] if one.command else []
    if found.checkpoints:
        lines += ["", "checkpoints"]
        for saved in found.checkpoints:
            lines.append(f"  {saved.name}  {show.bytes_(saved.bytes):>9}  {' and '.join(saved.names)}".rstrip())
    if found.last_words:
        lines += ["", "last words", *(f"  {line}" for line in found.last_words)]
    return "\n".join([*lines, "", *(f"next: {command}" for command in found.next)])


def compare(arguments: list[str]) -> None:
    options = parse(CompareOptions, "runs compare", arguments)
    from paddock.jobs.runs import compare_runs
    from paddock.telemetry.records import plain

    found = compare_runs(options.runs)
    if options.json:
        print(json.dumps(plain(found.to_dict()), ensure_ascii=False))
        return
    print(compare_page(found, options.all))
    for name in found.silent:
        print(f"note: {name} says nothing of its recipe", file=sys.stderr)


def compare_page(found: Beside, shows_all: bool) -> str:
    """The differences, then the numbers; a star is at the best one of a row."""
    from paddock.reporting.curves import shared_names

    names = shared_names([run.name for run in found.runs])
    facts = found.facts if shows_all else found.differences
    lines = table([["", *names], *([row.label, *row.words] for row in facts)])
    if not shows_all:
        same = sum(not row.differs for row in found.facts)
        lines.append(f"the same: {', '.join(row.label for row in found.common) or 'nothing'}; {same} facts in all")
    rows = []
    for row in found.metrics:
        cells = [f"{text}{' *' if place == row.leader else ''}" for place, text in enumerate(row.shown)]
        rows.append([f"{row.name}{' (best)' if row.kind == 'best' else ''}", *cells])
    return "\n".join([*lines, "", *table([["", *names], *rows])])


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
    for line in plan_lines(plan):
        print(line)
    print(f"{show.bytes_(plan.bytes)} {verdict}" if plan.removals else "nothing to remove")


def plan_lines(plan: Plan) -> list[str]:
    rows = [[str(one.path), show.bytes_(one.bytes), one.why] for one in plan.removals]
    return table(rows, right=(1,)) if rows else []


def remove(plan: Plan, verb: str, *, yes: bool, as_json: bool) -> None:
    """Remove what is planned, if it is wanted."""
    from paddock.reporting.tidying import carry_out

    if not (yes or confirmed(plan, verb)):
        print("nothing was removed", file=sys.stderr)
        return
    done = []
    for removal in carry_out(plan):
        done.append(removal)
        if not as_json:
            print(f"removed {removal.path} ({show.bytes_(removal.bytes)})")
    if as_json:
        print(json.dumps({**plan.to_dict(), "removals": [removal.to_dict() for removal in done]}, ensure_ascii=False))


def confirmed(plan: Plan, verb: str) -> bool:
    """Ask, if there is somebody to ask."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            f"paddock {verb} asks before it removes anything, and there is no terminal to ask at",
            fix="add --yes" + ("" if verb == "runs rm" else ", or look first with --dry-run"),
        )
    for line in plan_lines(plan):
        print(line, file=sys.stderr)
    print(f"remove {show.bytes_(plan.bytes)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
