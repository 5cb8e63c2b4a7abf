"""Runs in plain text, for people at a terminal: a list, one run, several beside each other, what is to go."""

from __future__ import annotations

import time
from collections.abc import Sequence

from paddock.alignment.comparison.comparability import word
from paddock.reporting.comparison import Beside
from paddock.reporting.curves import shared_names
from paddock.reporting.details import RunDetails
from paddock.reporting.listing import RunEntry, cells_of
from paddock.reporting.tidying import Plan
from paddock.telemetry import format as show
from paddock.telemetry.logfile import general, with_unit

LONGEST_REASON = 120
"""Characters of what is damaged, in a list."""


def list_page(runs: Sequence[RunEntry], room: int | None = None) -> str:
    """A row for every run, with as many columns as there is room for."""
    head = ["run", "state", "recipe", "steps", "loss", "best", "speed", "size", "age"]
    rows = [head, *(_list_row(run) for run in runs)]
    lines = table(rows, right=(3, 4, 7, 8), expendable=(6, 5, 8, 2, 7), room=room)
    damaged = [f"damaged: {run.name}: {shortened(run.why)}" for run in runs if run.state == "damaged"]
    return "\n".join([*lines, *damaged])


def shortened(text: str) -> str:
    """The beginning of what `show` says whole."""
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _list_row(run: RunEntry) -> list[str]:
    recipe, state, steps, loss, best, speed, size = cells_of(run)
    age = show.duration(max(round(time.time() - run.changed), 0))
    return [run.name, state, recipe, steps, loss, best, speed, size, age]


def table(
    rows: Sequence[Sequence[str]],
    right: Sequence[int] = (),
    expendable: Sequence[int] = (),
    room: int | None = None,
) -> list[str]:
    """Rows as lines. Where there is too little room, columns are left out, the most expendable first."""
    columns = list(range(len(rows[0])))
    widths = [max(len(row[column]) for row in rows) for column in columns]
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


def run_page(found: RunDetails) -> str:
    """What a run is and has, section by section."""
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
        lines += [
            "",
            "newest numbers",
            *(f"  {name:<36} {with_unit(name, value)}" for name, value in found.last.items()),
        ]
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


def compare_page(found: Beside, shows_all: bool) -> str:
    """The differences, then the numbers; a star is at the best one of a row."""
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


def plan_lines(plan: Plan) -> list[str]:
    rows = [[str(one.path), show.bytes_(one.bytes), one.why] for one in plan.removals]
    return table(rows, right=(1,)) if rows else []
