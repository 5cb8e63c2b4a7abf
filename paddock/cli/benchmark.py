"""`paddock benchmark RECIPE`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from paddock.cli.arguments import parse_recipe_command
from paddock.config.load import to_yaml
from paddock.config.recipe import Recipe
from paddock.errors import ConfigError
from paddock.launch.options import LaunchOptions
from paddock.phases import starting
from paddock.schema import ConfigModel
from paddock.telemetry import format as show

if TYPE_CHECKING:
    from paddock.jobs.benchmark import Measurement


PeerSetting = Literal["default", "tuned", "compiled", "compiled-whole"]


class BenchmarkConfig(ConfigModel):
    """What to measure."""

    train: bool = False
    """Measure training steps instead of forward passes."""
    warmup: int | None = None
    """Iterations before the clock runs; 5, or 2 beside a peer."""
    iterations: int | None = None
    """Iterations to time, each over one global batch; 100, or 8 beside a peer."""
    peer_settings: tuple[PeerSetting, ...] = ("default", "tuned", "compiled")
    """With --compare: how the peer runs: as it comes; with a fused optimizer, our allocator and memory format; and
    besides with its blocks compiled, or all of it at once. All sides are in memory at once."""

    def measurement(self, warmup: int, iterations: int) -> Measurement:
        """The same, with numbers where none are given."""
        from paddock.jobs.benchmark import Measurement

        found = {"warmup": warmup, "iterations": iterations}
        found |= {name: value for name in found if (value := getattr(self, name)) is not None}
        return Measurement(self.train, **found)


@dataclass(frozen=True)
class BenchmarkOptions:
    """How fast the model of a recipe computes on this machine.

    Needs no data: random samples go through the model, forward or (--benchmark.train) in whole training steps. Prints
    throughput, latency, FLOP/s from a counted number of operations and what part of the device's peak that is, with
    the whole recipe, so that the numbers can be had again."""

    benchmark: BenchmarkConfig = field(default_factory=BenchmarkConfig)
    """What to measure."""
    compare: str | None = None
    """Measure the same work beside another library that is installed: hf (transformers), torchvision, timm or litgpt.
    Both run on this CPU, in turns, the peer as it comes and tuned and compiled; ratios are those of the same turn."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    command = parse_recipe_command(BenchmarkOptions, "benchmark", arguments)
    chosen = BenchmarkConfig(**vars(command.options.benchmark))
    if command.options.compare is None:
        measure(command.recipe, chosen, command.launch, command.options.json)
        return
    if command.launch != LaunchOptions(threads=command.launch.threads):
        raise ConfigError(
            "--compare measures one process beside another", fix="leave out --nproc-per-node and the like"
        )
    measure_beside(command.recipe, command.options.compare, chosen, command.launch, command.options.json)


def measure_beside(recipe: Recipe, peer: str, chosen: BenchmarkConfig, launch: LaunchOptions, as_json: bool) -> None:
    """Measure and print."""
    with starting(at_once=True):
        from paddock.jobs.benchmark import compare
        from paddock.telemetry.screen.terminal import progress_bar

        measurement = chosen.measurement(warmup=2, iterations=8)
    with progress_bar("compare", visible=True) as on_turn:
        result = compare(recipe, peer, chosen.peer_settings, measurement, launch, on_turn)
    print(json.dumps(result) if as_json else "\n".join(comparison_lines(result)), flush=True)


def comparison_lines(result: dict[str, Any]) -> list[str]:
    """The ratios for people."""
    width = max(len(name) for name in result["sides"])
    out = [f"{result['turns']} {result['work']} of {result['batch']} samples each, in turns, {result['compute']}"]
    out.append(f"{result['processor']}, {result['threads']} threads, torch {result['versions']['torch']}")
    for name, side in result["sides"].items():
        memory = "" if side["memory"] is None else f", peak {show.bytes_(side['memory'])}"
        out.append(f"  {name:<{width}}  {show.rate(side['samples_per_second'])} samples/s{memory}")
    for name, ratio in result["ratios"].items():
        best = ", its best" if name == result["best"] else ""
        share = result["memory_ratios"][name]
        memory = "" if share is None else f", {share:.2f} of its memory"
        out.append(f"  ratio to {name}{best}: {_range(ratio)} ×{memory}")
    part = _range(result["fraction_of_product"])
    out.append(f"  {part} of the best matrix product, {show.flops(result['product_flops'])}")
    return out


def _range(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def measure(recipe: Recipe, chosen: BenchmarkConfig, launch: LaunchOptions, as_json: bool) -> None:
    """Measure and print."""
    with starting(launch.node_rank):
        from paddock.jobs.benchmark import benchmark

        result = benchmark(recipe, chosen.measurement(warmup=5, iterations=100), launch)
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
