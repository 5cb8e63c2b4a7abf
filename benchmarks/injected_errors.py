"""How well layer alignment finds what is wrong: errors put into operators of a simulated accelerator, one at a time.

Family, operator, module, direction and relative size (1e-4 to 5e-2) are drawn from those that a training step of the
family's smallest recipe has. It counts how often the right module and the right operator are named; and how often
something is found where nothing is wrong, with other weights and samples each time: every second of these devices
computes something else every time (by 1e-7 to 1e-5).

In types of few bits errors are half a rounding of the type at least, since less is rounded away; what is found is told
by their size in roundings. `--every-operator` looks into parts that agree as well.

Then drift: short runs of a small GPT-2 on the accelerator with an error (0.1 to 100), beside the CPU's. Of those whose
final loss moves by more than one percent, or that break off, `paddock align RUN REFERENCE` may call none aligned.
Run: python benchmarks/injected_errors.py [--errors 200] [--clean 50] [--drifts 40] [--seed 0] [--no-keep]
     [--precision float32|bfloat16|float16] [--every-operator]
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from report import keep, show

from paddock.alignment.comparison.logged import read_run
from paddock.alignment.comparison.runs import Settings, compare_runs
from paddock.alignment.layers.alignment import LayerAlignment, align_layers
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import adapter_named
from paddock.errors import NumericsError
from paddock.jobs.train import train
from paddock.launch.options import LaunchOptions
from paddock.testing.simulated import Injection, name_modules, simulated_device
from paddock.testing.simulated.census import operators_of
from paddock.testing.tiny import losses
from paddock.training.callbacks import Callback
from paddock.training.run import TrainingRun

DEVICE = "npu"
RECIPES = ("gpt2/tiny", "bert/tiny", "t5/tiny", "mt5/tiny", "resnet/tiny-synthetic")
SMALL: dict[str, Any] = {"batch": {"micro": 2, "global": 2}}
SMALLEST, LARGEST = -4, -1.301
"""Powers of ten between which the sizes of errors lie."""
NOISE = -7, -5
"""The same of what a device differs from itself by."""
BINS = (0.5, 1, 2, 4, math.inf)
"""Sizes in roundings of a type of few bits."""

DRIFTING = "gpt2/tiny"
SHORT: dict[str, Any] = {
    "model": {"layers": 4, "hidden": 32, "heads": 4, "vocab": 512, "context": 32, "dropout": 0.0},
    "data": {"sequence_length": 32},
    "batch": {"micro": 4, "global": 4},
    "schedule": {"warmup": 2},
    "train": {"steps": 20},
    "evaluate": {"every": None},
    "checkpoint": {"every": None},
    "log": {"every": 1},
}
"""A run that learns in a few seconds, with the layers of the recipe."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--errors", type=int, default=200)
    parser.add_argument("--clean", type=int, default=50)
    parser.add_argument("--drifts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=True, help="write the table")
    parser.add_argument("--precision", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--every-operator", action="store_true", help="also of parts that agree")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(arguments.seed)
    modules, operators, alarms = 0, 0, 0
    how = (arguments.precision, arguments.every_operator)
    rounding = torch.finfo(getattr(torch, arguments.precision)).eps
    smallest = max(SMALLEST, math.log10(rounding / 2))
    by_size: dict[float, list[bool]] = {least: [] for least in BINS[:-1]}
    places = {name: _places(name) for name in RECIPES}
    number = 0
    while number < arguments.errors:
        name = draw.choice(RECIPES)
        operator, module, direction = draw.choice(places[name])
        size = 10 ** draw.uniform(smallest, LARGEST)
        found, applied = _align(name, number, [Injection(operator, module, size, direction)], *how)
        if not applied:  # torch makes the operator of others there, so that the device has none that could be wrong
            continue
        number += 1
        right_module, right_operator = _named(found, operator, module, direction)
        modules, operators = modules + right_module, operators + right_operator
        by_size[max(least for least in by_size if least <= max(size / rounding, 0.5))].append(right_operator)
        if not (right_module and right_operator):
            said = [(one.operator, one.module, one.direction) for one in found.operators[:2]] or found.culprit
            print(
                f"{number}: {name} {operator} in {module}, {direction}, {size:.1e}: {said}", file=sys.stderr, flush=True
            )
    for number in range(arguments.clean):
        noise = 10 ** draw.uniform(*NOISE) if number % 2 else 0.0
        found, _ = _align(RECIPES[number % len(RECIPES)], 1000 + number, [], *how, nondeterministic=noise)
        alarms += not found.aligned
        for one in found.failures[:1]:
            print(f"clean {number}: {one}", file=sys.stderr, flush=True)
    moved, told = 0, 0
    if arguments.drifts:
        moved, told = drift(arguments.drifts, random.Random(arguments.seed), places[DRIFTING])
    sizes = [
        (f"right operator named, errors of {least} to {most} roundings", sum(one) / len(one), "")
        for (least, one), most in zip(by_size.items(), BINS[1:], strict=True)
        if one and arguments.precision != "float32"
    ]
    (keep if arguments.keep else lambda _, rows: show(rows))(
        __file__ if arguments.precision == "float32" else f"injected_errors_{arguments.precision}.py",
        [
            ("seed", float(arguments.seed), ""),
            ("errors put in", float(arguments.errors), ""),
            ("right module named", modules / max(arguments.errors, 1), "≥ 0.97"),
            ("right operator named", operators / max(arguments.errors, 1), "≥ 0.90"),
            *sizes,
            ("runs without an error", float(arguments.clean), ""),
            ("false alarms", float(alarms), "0"),
            ("short runs with an error", float(arguments.drifts), ""),
            ("whose final loss moved by more than 1 %", float(moved), ""),
            ("of these, called not aligned", float(told), str(moved)),
        ],
    )


def _recipe(name: str, seed: int, precision: str = "float32") -> Recipe:
    changes = {**SMALL, "train": {"seed": seed}, "precision": {"compute": precision}}
    return recipe_from_dict(merge(load_recipe(name).to_dict(), changes))


def _places(name: str) -> list[tuple[str, str, Any]]:
    """Every operator that computes something, with the module and the direction that it runs in."""
    with simulated_device(DEVICE):
        return operators_of(_recipe(name, 0), adapter_named(DEVICE))


def _align(
    name: str,
    seed: int,
    injections: Sequence[Injection],
    precision: str,
    every_operator: bool,
    *,
    nondeterministic: float = 0.0,
) -> tuple[LayerAlignment, bool]:
    """What was found, and whether the device computed anything wrong at all."""
    with simulated_device(DEVICE, injections=injections, nondeterministic=nondeterministic) as device:
        adapters, recipe = (adapter_named(DEVICE), adapter_named("cpu")), _recipe(name, seed, precision)
        found = align_layers(name, recipe, *adapters, prepare_model=name_modules, every_operator=every_operator)
        return found, device.injections is not None and device.injections.applied > 0


class NameModules(Callback):
    """Tells the simulated accelerator which module is which, before the first step."""

    def on_start(self, run: TrainingRun) -> None:
        for model in run.engine.models:
            name_modules(model)


def drift(count: int, draw: random.Random, places: Sequence[tuple[str, str, Any]]) -> tuple[int, int]:
    """How many of the runs moved, and how many of these `paddock align` calls not aligned."""
    moved = told = number = 0
    with tempfile.TemporaryDirectory() as folder:
        reference = Path(folder) / "reference"
        _train("cpu", [], reference)
        while number < count:
            operator, module, direction = draw.choice(places)
            injection = Injection(operator, module, 10 ** draw.uniform(-1, 2), direction)
            here = Path(folder) / str(number)
            if not _train(DEVICE, [injection], here):
                shutil.rmtree(here, ignore_errors=True)
                continue
            number += 1
            aligned = compare_runs(read_run(str(here)), read_run(str(reference)), Settings()).aligned
            last, right = losses(here)[-1:], losses(reference)[-1]
            ended = len(losses(here)) == len(losses(reference)) and math.isfinite(last[0])
            if not ended or abs(last[0] / right - 1) > 0.01:
                moved, told = moved + 1, told + (not aligned)
                if aligned:
                    print(f"drift {number}: {injection}: {last} beside {right}", file=sys.stderr, flush=True)
    return moved, told


def _train(device: str, injections: Sequence[Injection], run_dir: Path) -> bool:
    """A short run; whether anything was computed wrong in it."""
    recipe = recipe_from_dict(merge(load_recipe(DRIFTING).to_dict(), merge(SHORT, {"train": {"device": device}})))
    with simulated_device(DEVICE, injections=injections) as accelerator, redirect_stderr(StringIO()):
        with suppress(NumericsError):  # where its loss is no number any more, it moved
            train("drift", recipe, LaunchOptions(), run_dir, callbacks=[NameModules()])
        return accelerator.injections is not None and accelerator.injections.applied > 0


def _named(found: LayerAlignment, operator: str, module: str, direction: str) -> tuple[bool, bool]:
    """Whether the first that is named is the right module, and the right operator there."""
    if not found.operators:
        return found.culprit == module, False
    first = found.operators[0]
    right = first.module == module and first.direction == direction
    return first.module == module, right and first.operator.startswith(f"{operator}.")


if __name__ == "__main__":
    main()
