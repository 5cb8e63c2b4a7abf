"""How well layer alignment finds what is wrong: errors put into operators of a simulated accelerator, one at a time.

Family, operator, module, direction and relative size (1e-4 to 5e-2) are drawn from those that a training step of the
family's smallest recipe has. It counts how often the right module and the right operator are named; and how often
something is found where nothing is wrong, with other weights and samples each time.
Run: python benchmarks/injected_errors.py [--errors 200] [--clean 50] [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from typing import Any

import torch
from report import keep

from paddock.alignment.layers.alignment import LayerAlignment, align_layers
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import adapter_named
from paddock.testing.simulated import Injection, name_modules, simulated_device
from paddock.testing.simulated.census import operators_of

DEVICE = "npu"
RECIPES = ("gpt2/tiny", "bert/tiny", "t5/tiny", "mt5/tiny", "resnet/tiny-synthetic")
SMALL: dict[str, Any] = {"precision": {"compute": "float32"}, "batch": {"micro": 2, "global": 2}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--errors", type=int, default=200)
    parser.add_argument("--clean", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(arguments.seed)
    modules, operators, alarms = 0, 0, 0
    places = {name: _places(name) for name in RECIPES}
    number = 0
    while number < arguments.errors:
        name = draw.choice(RECIPES)
        operator, module, direction = draw.choice(places[name])
        size = 10 ** draw.uniform(-4, -1.301)
        found, applied = _align(name, number, [Injection(operator, module, size, direction)])
        if not applied:  # torch makes the operator of others there, so that the device has none that could be wrong
            continue
        number += 1
        right_module, right_operator = _named(found, operator, module, direction)
        modules, operators = modules + right_module, operators + right_operator
        if not (right_module and right_operator):
            said = [(one.operator, one.module, one.direction) for one in found.operators[:2]] or found.culprit
            print(
                f"{number}: {name} {operator} in {module}, {direction}, {size:.1e}: {said}", file=sys.stderr, flush=True
            )
    for number in range(arguments.clean):
        found, _ = _align(RECIPES[number % len(RECIPES)], 1000 + number, [])
        alarms += not found.aligned
        for one in found.failures[:1]:
            print(f"clean {number}: {one}", file=sys.stderr, flush=True)
    keep(
        __file__,
        [
            ("errors put in", float(arguments.errors), ""),
            ("right module named", modules / max(arguments.errors, 1), "≥ 0.97"),
            ("right operator named", operators / max(arguments.errors, 1), "≥ 0.90"),
            ("runs without an error", float(arguments.clean), ""),
            ("false alarms", float(alarms), "0"),
        ],
    )


def _recipe(name: str, seed: int) -> Recipe:
    return recipe_from_dict(merge(load_recipe(name).to_dict(), {**SMALL, "train": {"seed": seed}}))


def _places(name: str) -> list[tuple[str, str, Any]]:
    """Every operator that computes something, with the module and the direction that it runs in."""
    with simulated_device(DEVICE):
        return operators_of(_recipe(name, 0), adapter_named(DEVICE))


def _align(name: str, seed: int, injections: Sequence[Injection]) -> tuple[LayerAlignment, bool]:
    """What was found, and whether the device computed anything wrong at all."""
    with simulated_device(DEVICE, injections=injections) as device:
        adapters = (adapter_named(DEVICE), adapter_named("cpu"))
        found = align_layers(name, _recipe(name, seed), *adapters, prepare_model=name_modules)
        return found, device.injections is not None and device.injections.applied > 0


def _named(found: LayerAlignment, operator: str, module: str, direction: str) -> tuple[bool, bool]:
    """Whether the first that is named is the right module, and the right operator there."""
    if not found.operators:
        return found.culprit == module, False
    first = found.operators[0]
    right = first.module == module and first.direction == direction
    return first.module == module, right and first.operator.startswith(f"{operator}.")


if __name__ == "__main__":
    main()
