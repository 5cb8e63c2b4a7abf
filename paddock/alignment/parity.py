"""Whether every layout computes the same: each trains the same few steps as one process, and the numbers are compared.

Layouts of the same number of processes run one after the other in the same processes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddock.alignment.divergence import DOUBLE_TOLERANCE, TOLERANCE, Difference, compare
from paddock.config.layouts import global_batch, legal_layouts, with_layout, world_of_layout
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.errors import CheckFailed, ConfigError, bad_value
from paddock.files import scratch_folder
from paddock.launch.environment import under_torchrun
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.models.registry import parameter_names
from paddock.tasks.registry import build_task, prepare_data

ALONE = "one process"


@dataclass(frozen=True)
class LayoutToCheck:
    """A layout by its name, and the recipe laid out in it."""

    name: str
    recipe: Recipe
    processes: int


@dataclass(frozen=True)
class Parity:
    """How far each layout is from one process."""

    steps: int | None
    precision: str
    alone: dict[str, Any]
    """The trace of one process."""
    differences: list[Difference]

    def to_dict(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "changed": {"dropout": "off", "precision": self.precision},
            "agrees": all(difference.agrees for difference in self.differences),
            "alone": {"loss": self.alone["losses"], "grad_norm": self.alone["norms"]},
            "layouts": [difference.to_dict() for difference in self.differences],
        }

    def raise_if_different(self) -> None:
        """Raise CheckFailed if a layout is too far from one process."""
        bad = [difference for difference in self.differences if not difference.agrees]
        if bad:
            raise CheckFailed(
                f"{len(bad)} of {len(self.differences)} layouts differ from one process: "
                + ", ".join(difference.layout for difference in bad[:8])
                + (" …" if len(bad) > 8 else ""),
                why=bad[0].explain(),
            )


def without_noise(recipe: Recipe) -> Recipe:
    """The recipe in which layouts must agree: without dropout, whose masks depend on the layout, and in float32."""
    values = recipe.to_dict()
    values["model"] = recipe.model.without_dropout().model_dump(mode="json", by_alias=True)
    values["precision"] = {"compute": "float32"}
    return recipe_from_dict(values)


def number_type(double: bool) -> str:
    return "float64" if double else "float32"


def comparable(recipe: Recipe) -> Recipe:
    """The recipe for one process, from initial weights, with the same global batch in every layout."""
    if recipe.checkpoint.load is not None:
        raise bad_value(
            "checkpoint.load", recipe.checkpoint.load, "the check begins from initial weights and would ignore it"
        )
    if recipe.model.mixes_samples():
        raise bad_value(
            "model.norm",
            "batch",
            "each data replica norms over its own samples, so that several compute another loss than one",
            "set --model.norm synchronised or group",
        )
    values = without_noise(recipe).to_dict()
    values["batch"] = {"micro": recipe.batch.micro, "global": global_batch(recipe)}
    values["train"] |= {"samples": None, "epochs": None}
    values["evaluate"]["every"] = None
    values["parallel"] = {"recompute": recipe.parallel.recompute}
    return recipe_from_dict(values)


def check_parity(recipe: Recipe, names: Sequence[str], launch: LaunchOptions, double: bool) -> Parity:
    """Train the same steps in every layout and in one process, and compare them."""
    from paddock.devices import select

    recipe = comparable(recipe)
    layouts = [LayoutToCheck(ALONE, recipe, 1), *choose_layouts(recipe, names, launch)]
    for layout in layouts:
        check_recipe(layout.recipe, layout.processes)
    adapter = select(recipe.train.device)
    if double and not adapter.float64:
        raise bad_value("--double", "true", f"{adapter.name} has no float64", "leave it out, or take --device cpu")
    prepare_data(recipe)
    say = f"{recipe.train.steps} steps of {len(layouts) - 1} layouts and one process"
    print(f"parity: {say}; dropout off, {number_type(double)}", file=sys.stderr)
    traces = run_layouts(layouts, double)
    tensors = parameter_names(recipe.model)
    tolerance = DOUBLE_TOLERANCE if double else TOLERANCE
    differences = [
        compare(layout.name, traces[layout.name], traces[ALONE], tensors, tolerance) for layout in layouts[1:]
    ]
    return Parity(recipe.train.steps, number_type(double), traces[ALONE], differences)


def run_layouts(layouts: Sequence[LayoutToCheck], double: bool = False) -> dict[str, dict[str, Any]]:
    """The trace of each layout, by its name; one set of processes for each number of them."""
    traces: dict[str, dict[str, Any]] = {}
    with scratch_folder() as folder:
        for processes in sorted({layout.processes for layout in layouts}):
            result = folder / f"{processes}.json"
            payload = {
                "layouts": [
                    (layout.name, layout.recipe.to_dict()) for layout in layouts if layout.processes == processes
                ],
                "double": double,
                "result": str(result),
            }
            run("paddock.alignment.parity:work", payload, LaunchOptions(nproc_per_node=processes), folder)
            traces |= json.loads(result.read_text(encoding="utf-8"))
    return traces


def work(payload: dict[str, Any]) -> None:
    """One process's part: all layouts of this number of processes."""
    from paddock.alignment.trace import computing_in, record_trace
    from paddock.devices import select
    from paddock.parallel.world import join_world

    recipes = [(name, recipe_from_dict(values)) for name, values in payload["layouts"]]
    first = recipes[0][1]
    traces = {}
    with (
        join_world(select(first.train.device), first.device.fallback) as world,
        computing_in(number_type(payload["double"])),
    ):
        task = build_task(first)
        for number, (name, recipe) in enumerate(recipes):
            if world.is_main:
                processes = f"{world.size} process{'es' if world.size > 1 else ''}"
                print(f"parity: {processes}, {number + 1}/{len(recipes)}: {name}", file=sys.stderr, flush=True)
            traces[name] = asdict(record_trace(recipe, task, world))
        if world.is_main:
            Path(payload["result"]).write_text(json.dumps(traces), encoding="utf-8")


def choose_layouts(recipe: Recipe, names: Sequence[str], launch: LaunchOptions) -> list[LayoutToCheck]:
    """The layouts that the names stand for; `all` is every legal one of --nproc-per-node processes."""
    launch.check()
    if launch.nnodes > 1 or under_torchrun():
        raise ConfigError("a parity check starts its own processes, on one machine", fix="start it by itself")
    if not names:
        raise ConfigError(
            "no layout is named", fix="set --layouts dp2 tp2 …, or --layouts all --nproc-per-node PROCESSES"
        )
    if list(names) == ["all"]:
        names = legal_layouts(recipe, launch.nproc_per_node)
        if launch.nproc_per_node == 1:
            raise ConfigError("one process has no other layout", fix="set --nproc-per-node 2 or more")
        if not names:
            raise ConfigError(f"the recipe has no legal layout of {launch.nproc_per_node} processes")
    elif launch.nproc_per_node > 1:
        raise bad_value(
            "--nproc-per-node",
            launch.nproc_per_node,
            "each layout says itself how many processes it takes, so it would be ignored",
            "leave it out, or set --layouts all",
        )
    laid_out = [with_layout(recipe, name) for name in names]
    return [LayoutToCheck(name, one, world_of_layout(one).world) for name, one in zip(names, laid_out, strict=True)]
