"""What layer alignment costs: comparing and recording one training step of GPT-2 124M, in turns with a plain step.

The device is the CPU itself, once with the reference's own bits, and once with other last bits, as another device has
them: then each part is computed twice, to know its noise. Bytes are those of a record, and of the scripts that show
operators of a simulated device that are wrong, with the numbers beside them. Building models is not counted.
Run: python benchmarks/layer_alignment.py [--recipe gpt2/117m] [--sequence 1024] [--micro 1] [--turns 3] [--keep]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from report import keep, show

from paddock.alignment.layers.alignment import align_layers
from paddock.alignment.layers.record import Recorder
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.devices import adapter_named, select
from paddock.models.layers.initialization import initialize
from paddock.models.model import Model
from paddock.models.registry import build_model, example_batch
from paddock.testing.simulated import Injection, name_modules, simulated_device
from paddock.training.optimization.optimizer import build_optimizer

WRONG = ("aten.addmm", "aten.gelu", "aten.mm")
"""Operators of the simulated device, each wrong by a thousandth."""
RIGHT, OTHER = "comparing a device with the same bits", "comparing one with other last bits"
RECORDED, RECORDED_OTHER = "recording the reference", "recording a device with other last bits"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="gpt2/117m")
    parser.add_argument("--sequence", type=int, help="the recipe's, if it is not told")
    parser.add_argument("--micro", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="write the table into benchmarks/results")
    arguments = parser.parse_args()
    changes = {"batch": {"micro": arguments.micro, "global": arguments.micro}, "precision": {"compute": "float32"}}
    if arguments.sequence is not None:
        changes["data"] = {"sequence_length": arguments.sequence}
    recipe = recipe_from_dict(merge(load_recipe(arguments.recipe).to_dict(), changes))
    with tempfile.TemporaryDirectory() as folder:
        scripts = script_bytes(recipe, Path(folder) / "scripts")
        select("cpu").prepare()
        step, record = plain_step(recipe), Path(folder) / "cpu.layers"
        sides: dict[str, Callable[[], float]] = {
            RIGHT: lambda: compare(recipe, None),
            OTHER: lambda: compare(recipe, disturb),
            RECORDED: lambda: write_record(recipe, record, None),
            RECORDED_OTHER: lambda: write_record(recipe, record, disturb),
        }
        step()
        ratios: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(arguments.turns):
            plain = step()
            for name, side in sides.items():
                ratios[name].append(side() / plain)
        rows = [(f"{name} ÷ a training step", statistics.median(found), "≤ 3") for name, found in ratios.items()]
        rows.append(("MB of a record", record.stat().st_size / 1e6, "≤ 50"))
        rows.append(("MB of scripts", scripts / 1e6, "≤ 50"))
    (keep if arguments.keep else lambda _, found: show(found))(__file__, rows)


def plain_step(recipe: Recipe) -> Callable[[], float]:
    """A training step of the same model on the same samples, and what it takes."""
    config = recipe.model.without_dropout()
    model = build_model(config).train()
    initialize(model, recipe.train.seed)
    batch = example_batch(config, recipe.batch.micro, recipe.data.sample_shape(), seed=recipe.train.seed)
    parameters = list(model.parameters())
    optimizer = build_optimizer(parameters, recipe.optimizer)

    def step() -> float:
        started = time.perf_counter()
        model(**batch).backward()
        torch.nn.utils.clip_grad_norm_(parameters, recipe.optimizer.clip or 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - started

    return step


def compare(recipe: Recipe, prepare_model: Callable[[Model], None] | None) -> float:
    cpu = adapter_named("cpu")
    found = align_layers("", recipe, cpu, cpu, prepare_model=prepare_model)
    assert found.aligned and found.deterministic and found.seconds is not None
    return found.seconds


def write_record(recipe: Recipe, path: Path, prepare_model: Callable[[Model], None] | None) -> float:
    recorder, cpu = Recorder(), adapter_named("cpu")
    found = align_layers("", recipe, cpu, cpu, on_tensor=recorder.hear, prepare_model=prepare_model)
    started = time.perf_counter()
    recorder.record(recipe.to_dict(), "cpu", "float32").write(path)
    assert found.seconds is not None
    return found.seconds + time.perf_counter() - started


def disturb(model: Model) -> None:
    """Let every unit's results differ by a rounding."""
    scale = 1 + torch.finfo(torch.float32).eps
    for unit in model.unit_modules():
        unit.register_forward_hook(lambda module, given, made: made * scale)


def script_bytes(recipe: Recipe, folder: Path) -> int:
    """Of all scripts, and what lies beside them."""
    with simulated_device("npu", injections=[Injection(operator) for operator in WRONG]):
        adapters = (adapter_named("npu"), adapter_named("cpu"))
        found = align_layers("", recipe, *adapters, folder=folder, prepare_model=name_modules)
    assert found.scripts
    return sum(file.stat().st_size for file in folder.iterdir())


if __name__ == "__main__":
    main()
