"""`paddock align RUN REFERENCE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from paddock.cli.arguments import parse

if TYPE_CHECKING:
    from paddock.alignment.comparison.comparability import State
    from paddock.alignment.comparison.runs import RunComparison

Runs = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN REFERENCE")]


@dataclass(frozen=True)
class AlignOptions:
    """Compare a run with a reference, and say whether they are aligned: the same training, on another device, in
    another layout, or in another program.

    Each is a run directory, the log of a dllogger (plain JSON lines, NVIDIA's DLLL, Tecorigin's TCAPPDLL), or a CSV
    with a column of steps. First it is looked at whether they can be compared at all: recipe, seed, training data,
    global batch and learning rates must be the same where they are known; layout, device, precision and versions may
    differ, and are listed. Then losses are compared step by step, and final metrics (val.…).

        paddock align runs/npu runs/cpu

        paddock align runs/npu runs/cpu --output report.html

        paddock align sdaa.json cuda.json --tolerance 0.02 --json

    Errors are relative to the reference, in absolute value. Aligned means: the mean error of the loss, the largest
    error of the smoothed loss (over a tenth of the recorded steps, 50 at most), the error of the last loss, and that
    of every final metric are within the tolerance, and there is no alarm. The largest error of a single step is shown,
    and decides nothing. Alarms are: a loss of exactly 0, a loss, gradient norm or final metric that is not finite, a
    run that ends before the step it was to reach or before the other one, no step in common.

    Exit code 0 if they are aligned, 7 if not, 2 if they cannot be compared."""

    runs: Runs = ()
    """The run, and the reference that it is compared with."""
    tolerance: float = 0.01
    """The largest relative error: 0.01 is one percent."""
    output: Path | None = None
    """Write a report (FILE.html, which needs nothing else) or the plot of the losses (FILE.svg)."""
    steps: int | None = None
    """Compare up to this step, and ask no more of either run."""
    loss: tuple[str, ...] = ()
    """The metric that is the loss, or one name for each run, where it is not called so."""
    steps_per_epoch: int | None = None
    """Steps of an epoch, where one of the runs counts them anew in every epoch and the other does not."""
    offset: int | None = None
    """What to add to the steps of the reference. None: 1 or -1 if one counts from 0 and the other from 1, else 0."""
    allow_differences: bool = False
    """Compare runs of different seeds, batches, data or recipes all the same."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    options = parse(AlignOptions, "align", arguments)
    from paddock.alignment.comparison.runs import Settings
    from paddock.jobs.align import align_runs
    from paddock.telemetry.records import plain

    names = ("tolerance", "loss", "steps", "steps_per_epoch", "offset", "allow_differences")
    settings = Settings(**{name: getattr(options, name) for name in names})
    found = align_runs(options.runs, settings, options.output)
    print(json.dumps(plain(found.to_dict()), ensure_ascii=False) if options.json else comparison_page(found))
    if options.output is not None:
        print(f"written: {options.output}", file=sys.stderr)
    sys.stdout.flush()
    found.raise_if_different()


def comparison_page(found: RunComparison) -> str:
    """What came of it, for people."""
    from paddock.alignment.comparison.report import VERDICTS, summary
    from paddock.alignment.comparison.runs import percent, shown_error

    lines = [f"{VERDICTS[found.aligned]}: {found.a.name} beside the reference {found.b.name}", summary(found), ""]
    lines += [*_facts(found), ""]
    if found.errors is not None:
        errors = found.errors
        lines.append(
            f"loss       mean {percent(errors.mean)}  smoothed {percent(errors.smoothed)}  "
            f"final {percent(errors.final)}  largest {percent(errors.max)} (step {errors.max_step})"
        )
    if found.norm is not None:
        norm = found.norm
        lines.append(f"grad norm  mean {percent(norm.mean)}  largest {percent(norm.max)} (step {norm.max_step})")
    width = max((len(metric.name) for metric in found.metrics), default=0)
    for one in found.metrics:
        lines.append(f"{one.name:<{width}}  {one.a:.6g}, reference {one.b:.6g}: {shown_error(one)} ({one.where})")
    lines += [f"ALARM: {alarm}" for alarm in found.alarms]
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(line.rstrip() for line in lines)


def _facts(found: RunComparison) -> Iterator[str]:
    """What the runs have in common: names alone, where they are the same; values where they differ."""
    from paddock.alignment.comparison.comparability import word

    facts = found.facts
    words: dict[State, str] = {"same": "and {} more", "unknown": "and {} more, of one of them"}
    for state, others in words.items():
        names = [fact.label for fact in facts.shown if fact.state == state]
        more = [others.format(count)] if (count := facts.count(state)) else []
        if names or more:
            yield f"{state:<9}  {', '.join(names + more)}"
    for fact in facts.shown:
        if fact.state == "differs":
            yield f"differs    {fact.label}: {word(fact.a)}, reference {word(fact.b)}"
