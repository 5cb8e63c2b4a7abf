"""`paddock align RUN REFERENCE`, `paddock align --model RECIPE --layers`, and `paddock align record RECIPE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from paddock.cli.arguments import parse, parse_recipe_command
from paddock.errors import bad_value
from paddock.phases import starting

if TYPE_CHECKING:
    from paddock.alignment.layers.alignment import LayerAlignment
    from paddock.alignment.layers.comparison import Compared

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


@dataclass(frozen=True)
class LayerOptions:
    """Compare one training step on a device with the same on a reference, layer by layer, and name what is wrong.

    Same weights, same samples, no dropout. Every part of the model is given the reference's inputs and gradients,
    so that no error of one reaches another; how far its results may be away is found by moving the reference's
    inputs by a rounding, and by letting the device compute the same twice: its noise. A part that fails is run
    again operator by operator, and --output gets a script that shows the operator alone; without it, nothing is
    written. --every-operator does so with every part. Then the optimizer's
    update is compared and, with --nproc-per-node 2 or more, what the devices of as many processes exchange: every
    kind of collective, on tensors as large as the model's.

        paddock align --model gpt2/tiny --device npu --layers

        paddock align --model gpt2/tiny --device npu --every-operator

        paddock align --model gpt2/tiny --device npu --nproc-per-node 2

        paddock align --model gpt2/tiny --compiled --layers

        paddock align --model gpt2/tiny --layouts tp2 pp2

    The last compares layouts with one process, as `paddock check parity` does. Exit code 0 if all agree, 7 if not."""

    layers: bool = True
    """Layer by layer: what --model is compared by."""
    reference: str = "cpu"
    """The device that is right."""
    compiled: bool = False
    """Compile the units of the device's model: eager beside compiled, where the device is the reference."""
    every_operator: bool = False
    """Compare each operator by itself, also in parts that agree: finds errors that rounding hides there, and takes
    many times as long."""
    output: Path | None = None
    """A folder for scripts that show what is wrong."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class RecordOptions:
    """Keep what a device computes of one training step in a small file, to be compared on another machine.

        paddock align record gpt2/tiny --device npu --output npu.layers

        paddock align npu.layers cpu.layers

    Both records are made with the same recipe and flags."""

    output: Path = Path("device.layers")
    """The file."""
    reference: str = "cpu"
    """The device whose numbers every part is given."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["record"]:
        return record(arguments[1:])
    if "--model" in arguments:
        return layers(arguments)
    options = parse(AlignOptions, "align", arguments)
    from paddock.jobs.align import align_records, is_record

    if len(options.runs) == 2 and all(map(is_record, options.runs)):
        with starting():
            found_layers = align_records(options.runs)
        return tell_layers(found_layers, options.json)
    from paddock.alignment.comparison.runs import Settings
    from paddock.alignment.comparison.text import comparison_text
    from paddock.jobs.align import align_runs
    from paddock.telemetry.records import plain

    names = ("tolerance", "loss", "steps", "steps_per_epoch", "offset", "allow_differences")
    settings = Settings(**{name: getattr(options, name) for name in names})
    found = align_runs(options.runs, settings, options.output)
    print(json.dumps(plain(found.to_dict()), ensure_ascii=False) if options.json else comparison_text(found))
    if options.output is not None:
        print(f"written: {options.output}", file=sys.stderr)
    sys.stdout.flush()
    found.raise_if_different()


def layers(arguments: list[str]) -> None:
    """`paddock align --model RECIPE`."""
    at = arguments.index("--model")
    named, rest = arguments[at + 1 : at + 2], [*arguments[:at], *arguments[at + 2 :]]
    if "--layouts" in rest:
        from paddock.cli.check import check_parity

        return check_parity([*named, *(flag for flag in rest if flag != "--layers")])
    command = parse_recipe_command(LayerOptions, "align --model", [*named, *rest])
    options = command.options
    with starting(command.launch.node_rank, at_once=True):
        from paddock.jobs.align import align_layers
        from paddock.telemetry.screen.terminal import progress_bar

    with progress_bar("align", visible=True) as on_part:
        found = align_layers(
            command.name,
            command.recipe,
            options.reference,
            command.launch,
            compiled=options.compiled,
            folder=options.output,
            every_operator=options.every_operator,
            on_part=on_part,
        )
    tell_layers(found, options.json)


def record(arguments: list[str]) -> None:
    """`paddock align record RECIPE`."""
    command = parse_recipe_command(RecordOptions, "align record", arguments)
    options = command.options
    if command.launch.world_size > 1:
        count = command.launch.world_size
        raise bad_value("processes", count, "a record is of what one device computes", "leave out --nproc-per-node")
    with starting(at_once=True):
        from paddock.jobs.align import record_layers
        from paddock.telemetry.screen.terminal import progress_bar

    with progress_bar("record", visible=True) as on_part:
        size = record_layers(command.name, command.recipe, options.reference, options.output, on_part)
    told = {"record": str(options.output), "bytes": size}
    print(json.dumps(told) if options.json else f"{options.output}: {size / 1e6:.2f} MB")


def tell_layers(found: LayerAlignment, as_json: bool) -> None:
    from paddock.telemetry.records import plain

    print(json.dumps(plain(found.to_dict()), ensure_ascii=False) if as_json else layers_page(found))
    sys.stdout.flush()
    found.raise_if_different()


def layers_page(found: LayerAlignment) -> str:
    """A row for every part, and what is to blame."""
    verdict = "aligned" if found.aligned else "NOT ALIGNED"
    lines = [
        f"{verdict}: {found.recipe} on {found.device} beside {found.reference}, {found.number_type}, no dropout",
        "",
    ]
    measured = found.deterministic is not None
    rows = [("part", "forward", "backward", *(["noise"] if measured else []), "verdict")]
    for part in dict.fromkeys(one.part for one in found.compared):
        rows.append(_row(part, [one for one in found.compared if one.part == part], measured))
        inside = found.modules.get(part, ())
        for module in dict.fromkeys(one.part for one in inside):
            rows.append(_row(f"  {module}", [one for one in inside if one.part == module], measured))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines += [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]
    if (noisiest := found.noisiest) is not None and noisiest.noise is not None and not found.deterministic:
        lines += [
            "",
            f"{found.device} is not deterministic: what it computes twice differs by up to {noisiest.noise.whole:.1e} "
            f"({noisiest.tensor}, {noisiest.part}), for which there is room",
        ]
    if found.operators:
        lines += ["", "to blame:"]
        lines += [
            f"  {one.operator} in {one.module or 'no module'}, {one.direction}: {one.distance.whole:.1e} away, "
            f"allowed {one.allowed.whole:.1e}"
            for one in found.operators[:8]
        ]
    lines += [f"script: {path}" for path in found.scripts]
    return "\n".join(lines)


def _farthest(compared: Sequence[Compared], directions: Sequence[str]) -> str:
    """How far the worst of a part's tensors is away."""
    apart = [one.distance.whole for one in compared if one.direction in directions]
    return f"{max(apart):.1e}" if apart else "–"


def _row(name: str, here: Sequence[Compared], measured: bool) -> tuple[str, ...]:
    """What is told of a part, or of a module inside."""
    forward, backward = (_farthest(here, kinds) for kinds in (("forward",), ("backward", "update", "collective")))
    bad = [one for one in here if not one.agrees]
    worst = max(bad, key=lambda one: one.distance.whole / max(one.allowed.whole, 1e-30)) if bad else None
    said = (
        "agrees" if worst is None else f"{worst.tensor}: {worst.distance.whole:.1e}, allowed {worst.allowed.whole:.1e}"
    )
    return name, forward, backward, *([_noise(here)] if measured else []), said


def _noise(compared: Sequence[Compared]) -> str:
    """How far the worst of a part's tensors is from itself."""
    apart = [one.noise.whole for one in compared if one.noise is not None]
    return f"{max(apart):.1e}" if apart else "–"
