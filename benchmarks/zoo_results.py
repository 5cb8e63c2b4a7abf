"""Measures what `paddock zoo list` and `paddock zoo show` tell of the recipes that ship, and writes it beside them.

For each recipe that trains in minutes on a small machine: the layouts that give its loss (`paddock check parity`), and
what training reaches (`paddock train`, `paddock evaluate`). With --device, of any recipes, whether that device is
aligned with the CPU (`paddock align --model`), and nothing else. Every number is one that a command printed.

    python benchmarks/zoo_results.py [RECIPE…] [--parity] [--train]
    python benchmarks/zoo_results.py [RECIPE…] --device NAME
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from paddock.config.load import SHIPPED, load_recipe
from paddock.devices import adapter_named, probe
from paddock.errors import CheckFailed
from paddock.telemetry.jsonl import metrics_of, read_metrics
from paddock.zoo.catalogue import FILE, Kind, KnownResult, write_results

LAYOUTS = {
    "gpt2/tiny": "dp2 tp2 pp2 dp2,shard=parameters",
    "bert/tiny": "dp2 tp2 pp2 dp2,shard=parameters",
    "t5/tiny": "dp2 tp2 pp2 dp2,shard=parameters",
    "t5/reverse": "dp2 tp2 pp2",
    "mt5/tiny": "dp2 tp2 pp2",
}
"""Layouts to prove, by recipe. ResNet has none: each replica norms by itself."""
TRAINED = ("gpt2/tiny", "bert/tiny", "t5/tiny", "t5/reverse", "resnet/tiny-synthetic")


def paddock(command: str) -> Any:
    """What a command prints as JSON; a check that found a difference prints it, too."""
    print(f"$ {command}", file=sys.stderr, flush=True)
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, CheckFailed.exit_code):
        raise SystemExit(f"{command}: exit status {done.returncode}")
    return json.loads(done.stdout) if done.stdout.strip() else None


def result(recipe: str, kind: Kind, name: str, value: float, detail: str, precision: str, command: str) -> KnownResult:
    cores = len(os.sched_getaffinity(0))
    return KnownResult(
        recipe=recipe,
        kind=kind,
        name=name,
        value=float(f"{value:.4g}"),
        detail=detail,
        precision=precision,
        machine=f"{platform.machine()}, {cores} cores",
        torch=metadata.version("torch").partition("+")[0],
        date=str(date.today()),
        command=command,
    )


def parity(recipe: str) -> list[KnownResult]:
    """Layouts whose losses and gradient norms are those of one process: in float32; else in float64, which tells a
    difference from rounding of which training makes much. What agrees in neither is left out, and said."""
    layouts = LAYOUTS[recipe]
    found: list[KnownResult] = []
    for double in ("", " --double"):
        command = f"paddock check parity {recipe} --layouts {layouts}{double} --steps 20"
        told = paddock(f"{command} --json")
        steps, precision = f"{told['steps']} steps", told["changed"]["precision"]
        agreeing = [one for one in told["layouts"] if one["agrees"]]
        found += [result(recipe, "layout", one["layout"], one["loss"], steps, precision, command) for one in agreeing]
        layouts = " ".join(one["layout"] for one in told["layouts"] if not one["agrees"])
        if not layouts:
            return found
    print(f"{recipe}: {layouts} differ in float64, too", file=sys.stderr)
    return found


def trained(recipe: str) -> list[KnownResult]:
    """What the recipe reaches as it is."""
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        paddock(f"paddock train {recipe} --run-dir {run}")
        measured = paddock(f"paddock evaluate {run} --json")
        records = read_metrics(Path(run, "metrics.jsonl"))
        steps = max(record["step"][1] for record in records if "train.loss" in metrics_of(record))
    detail, command = f"{steps} steps", f"paddock train {recipe} --run-dir RUN; paddock evaluate RUN"
    precision = load_recipe(recipe).precision.compute
    return [
        result(recipe, "metric", name, value, detail, precision, command)
        for name, value in measured.items()
        if name.startswith("val.") and name != "val.ips"
    ]


def aligned(recipe: str, device: str) -> list[KnownResult]:
    """A row if the device computes a training step of the recipe as the CPU does; none if it does not, and that is
    said."""
    command = f"paddock align --model {recipe} --device {device} --layers"
    told = paddock(f"{command} --json")
    if not told["aligned"]:
        print(f"{recipe}: {device} is not aligned: {told['culprit']}", file=sys.stderr)
        return []
    detail = f"{told['compared']} tensors of a step"
    return [result(recipe, "device", device, told["farthest"], detail, told["number_type"], command)]


def check_device(parser: argparse.ArgumentParser, name: str, folder: Path) -> None:
    """Whether a device may have rows: it must be another than the reference, and one that exists where they ship."""
    adapter = adapter_named(name)
    if adapter.computes_on_host:
        parser.error(f"--device {name}: it is what devices are compared with")
    found = probe(adapter)
    if not found.available:
        parser.error(f"--device {name}: {found.reason}")
    if folder == SHIPPED and any(one.startswith("simulated") for one in found.names):
        parser.error(f"--device {name}: it is a simulated one; --folder writes its rows elsewhere")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=sorted({*LAYOUTS, *TRAINED}))
    parser.add_argument("--parity", action="store_true", help="only the layouts")
    parser.add_argument("--train", action="store_true", help="only what training reaches")
    parser.add_argument("--device", help="only whether this device is aligned with the CPU")
    parser.add_argument("--folder", type=Path, default=SHIPPED, help="where recipes' folders of results are")
    options = parser.parse_args()
    if options.device is not None:
        check_device(parser, options.device, options.folder)
    for recipe in options.recipes:
        found: list[KnownResult] = []
        if options.device is not None:
            found += aligned(recipe, options.device)
        if recipe in LAYOUTS and not options.train and options.device is None:
            found += parity(recipe)
        if recipe in TRAINED and not options.parity and options.device is None:
            found += trained(recipe)
        if found:
            path = options.folder / recipe.partition("/")[0] / FILE
            path.parent.mkdir(parents=True, exist_ok=True)
            write_results(path, found)


if __name__ == "__main__":
    main()
