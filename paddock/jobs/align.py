"""Comparing two runs, or one training step of a model on two devices, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.alignment.comparison.logged import read_run
from paddock.alignment.comparison.report import check_report_name, write_report
from paddock.alignment.comparison.runs import RunComparison, Settings, compare_runs
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, bad_value
from paddock.files import disk_errors, user_path
from paddock.launch.environment import under_torchrun
from paddock.launch.options import LaunchOptions

if TYPE_CHECKING:
    from paddock.alignment.layers.alignment import LayerAlignment, OnPart
    from paddock.devices import DeviceAdapter

RECORD = ".layers"
"""How the name of a record of layers ends."""


def align_runs(runs: Sequence[str], settings: Settings, output: Path | None) -> RunComparison:
    """Compare the first run with the second, the reference; `output` is a page (.html) or a plot (.svg)."""
    settings.check()
    if len(runs) != 2:
        raise ConfigError(
            f"paddock align compares two runs, and {len(runs) or 'none'} {'is' if len(runs) == 1 else 'are'} named",
            fix="paddock align RUN REFERENCE",
        )
    if output is not None:
        check_report_name("--output", output)
    if user_path(runs[0]).resolve() == user_path(runs[1]).resolve():
        raise ConfigError(f"{runs[0]} and {runs[1]} are the same", why="a run agrees with itself", fix="name another")
    found = compare_runs(read_run(runs[0]), read_run(runs[1]), settings)
    if output is not None:
        write_report(found, output)
    return found


def align_layers(
    name: str,
    recipe: Recipe,
    reference: str,
    processes: LaunchOptions,
    *,
    compiled: bool,
    folder: Path | None,
    every_operator: bool = False,
    on_part: OnPart | None = None,
) -> LayerAlignment:
    """Compare one training step of a recipe's model on its device with the same on the reference's, part by part; with
    several processes, what their devices exchange besides."""
    from paddock.alignment.layers import alignment

    _check_processes(processes)
    if compiled and every_operator:
        raise bad_value("--every-operator", True, "compiled layers have no operators of their own", "leave one out")
    device, other = _devices(recipe, reference)
    if device == other and not compiled:
        raise bad_value(
            "--reference",
            reference,
            "it is the device itself, which agrees with itself",
            "set --device to the one that is to be compared, or --compiled",
        )
    return alignment.align_layers(
        name,
        recipe,
        device,
        other,
        compiled=compiled,
        folder=folder,
        on_part=on_part,
        every_operator=every_operator,
        processes=processes,
    )


def record_layers(name: str, recipe: Recipe, reference: str, output: Path, on_part: OnPart | None = None) -> int:
    """Keep what a device computes of one training step in a file; returns its size in bytes."""
    from paddock.alignment.layers import alignment
    from paddock.alignment.layers.record import Recorder

    if output.suffix != RECORD:
        raise bad_value(
            "--output", output, "a record's name ends so that it can be told from a log", f"end it in {RECORD}"
        )
    device, other = _devices(recipe, reference)
    recorder = Recorder()
    alignment.align_layers(name, recipe, device, other, on_part=on_part, on_tensor=recorder.hear)
    with disk_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    recorder.record(recipe.to_dict(), device.name, recipe.precision.compute).write(output)
    return output.stat().st_size


def align_records(paths: Sequence[str]) -> LayerAlignment:
    """Compare a record of one device with that of another, the reference."""
    from paddock.alignment.layers.alignment import LayerAlignment
    from paddock.alignment.layers.record import compare_records, read_record

    found, reference = (read_record(user_path(path)) for path in paths)
    compared = compare_records(found, reference)
    return LayerAlignment(paths[0], found.device, reference.device, found.number_type, compared)


def is_record(path: str) -> bool:
    return Path(path).suffix == RECORD


def _check_processes(processes: LaunchOptions) -> None:
    processes.check()
    if processes.nnodes > 1 or under_torchrun():
        raise ConfigError(
            "layers are compared on one machine, by a process of its own that starts the others",
            fix="leave out --nnodes and torchrun; paddock check device looks at collectives, too",
        )


def _devices(recipe: Recipe, reference: str) -> tuple[DeviceAdapter, DeviceAdapter]:
    """The device of a recipe, and the reference, both ready."""
    from paddock.devices import prepare, select

    device, other = select(recipe.train.device), select(reference)
    prepare(device)
    device.activate(0)
    return device, other
