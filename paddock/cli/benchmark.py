"""`paddock benchmark RECIPE`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from paddock.cli.arguments import parse_recipe_command
from paddock.config.load import to_yaml
from paddock.config.recipe import Recipe
from paddock.launch.options import LaunchOptions
from paddock.schema import ConfigModel
from paddock.telemetry import format as show


class BenchmarkConfig(ConfigModel):
    """What to measure."""

    train: bool = False
    """Measure training steps instead of forward passes."""
    warmup: int = 5
    """Iterations before the clock runs."""
    iterations: int = 100
    """Iterations to time, each over one global batch."""


@dataclass(frozen=True)
class BenchmarkOptions:
    """How fast the model of a recipe computes on this machine.

    Needs no data: random samples go through the model, forward or (--benchmark.train) in whole training steps. Prints
    throughput, latency, FLOP/s from a counted number of operations and what part of the device's peak that is, with
    the whole recipe, so that the numbers can be had again."""

    benchmark: BenchmarkConfig = field(default_factory=BenchmarkConfig)
    """What to measure."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    command = parse_recipe_command(BenchmarkOptions, "benchmark", arguments)
    chosen = BenchmarkConfig(**vars(command.options.benchmark))
    measure(command.recipe, chosen, command.launch, command.options.json)


def measure(recipe: Recipe, chosen: BenchmarkConfig, launch: LaunchOptions, as_json: bool) -> None:
    """Measure and print."""
    from paddock.jobs.benchmark import Measurement, benchmark

    result = benchmark(recipe, Measurement(**chosen.model_dump()), launch)
    if result is None:  # this is not the main process
        return
    print(json.dumps(result) if as_json else "\n".join([*lines(result), "", to_yaml(recipe).rstrip()]), flush=True)


def lines(result: dict[str, Any]) -> list[str]:
    """The numbers for people."""
    latency, threads = result["latency"], result["threads"]
    rates = f"{show.rate(result['samples_per_second'])} {result['unit']}/s"
    if "tokens_per_second" in result:
        rates += f", {show.rate(result['tokens_per_second'])} tokens/s"
    used = "" if result["utilisation"] is None else f", {show.percent(result['utilisation'])} of "
    peak = "" if not used else f"{show.flops(result['peak_flops'])} ({result['peak_source']})"
    model = result["recipe"]["model"]
    rows = {
        "model": f"{model.get('arch', model['family'])}, {show.count(result['parameters'])} parameters",
        "measured": f"{result['iterations']} {result['mode']} after {result['warmup']} to warm up",
        "batch": result["batch"],
        "throughput": rates,
        "latency": ", ".join(f"{name} {show.duration(value)}" for name, value in latency.items()),
        "operations": f"{show.count(result['flops_per_sample'])} FLOP for each of the {result['unit']}",
        "achieved": show.flops(result["achieved_flops"]) + used + peak,
        "memory": "unknown" if result["memory"] is None else f"{show.bytes_(result['memory'])} in a process",
        "processes": f"{result['processes']}, " + " × ".join(f"{k} {v}" for k, v in result["layout"].items()),
        "device": f"{result['device']}: {result['device_name']}"
        + ("" if threads is None else f", {threads} thread{'s' if threads > 1 else ''} each"),
        "versions": ", ".join(f"{name} {result['versions'][name]}" for name in ("paddock", "torch", "python")),
    }
    return [f"{name:<11}{value}" for name, value in rows.items()]
