"""Where a training step's time goes, family by family: parts of the time of its kernels, by what they are for.

One process, by torch's profiler, the middle of several steps; docs/where-time-goes.md is made of it.
Run: python benchmarks/step_profile.py [--workloads gpt2 …] [--steps 5]
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beside_peers import WORKLOADS

RESULTS = Path(__file__).parent / "results" / "step-profile.csv"
KINDS: dict[str, tuple[str, ...]] = {
    "products": ("aten::mm", "aten::addmm", "aten::addmm_", "mkldnn::_linear_pointwise", "aten::linear"),
    "attention": ("scaled_dot_product", "blocked_attention", "aten::bmm", "aten::baddbmm", "aten::_softmax"),
    "convolutions": ("convolution",),
    "norms": ("layer_norm", "batch_norm", "aten::rsqrt", "aten::var_mean"),
    "activation": ("gelu", "relu", "threshold_backward"),
    "dropout masks": ("random_mask", "aten::ge"),
    "softmax and loss": ("log_softmax", "nll_loss", "aten::exp_", "aten::gather", "aten::scatter"),
    "embedding": ("embedding", "aten::index"),
    "optimizer": ("_fused_", "Optimizer."),
    "gradient norm and clipping": ("linalg_vector_norm", "_foreach"),
    "sums, copies, fills": (
        "aten::add",
        "aten::mul",
        "aten::copy_",
        "aten::fill_",
        "aten::cat",
        "aten::sum",
        "aten::sub",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [name for name, (_, flags) in WORKLOADS.items() if "--benchmark.train" in flags]
    parser.add_argument("--workloads", nargs="*", default=names, choices=names)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(profiled(WORKLOADS[arguments.child][1], arguments.steps)))
        return
    rows = []
    for name in arguments.workloads:
        command = [sys.executable, __file__, "--child", name, "--steps", str(arguments.steps)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        rows.append({"workload": WORKLOADS[name][0], **{kind: f"{part:.1%}" for kind, part in found.items()}})
        print(", ".join(f"{kind} {part}" for kind, part in rows[-1].items()), flush=True)
    with open(RESULTS, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["workload", *KINDS, "the rest"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def profiled(flags: list[str], steps: int) -> dict[str, float]:
    """What part of a step each kind of kernel takes."""
    from torch.profiler import ProfilerActivity, profile

    from paddock.benchmarking.computation import computation
    from paddock.cli.arguments import parse_recipe_command
    from paddock.cli.benchmark import BenchmarkOptions
    from paddock.config.rules import check_layout
    from paddock.devices import select
    from paddock.parallel.world import join_world
    from paddock.process import claim
    from paddock.training.run import chosen_products

    claim()
    recipe = parse_recipe_command(BenchmarkOptions, "benchmark", flags).recipe
    with join_world(select("cpu")) as world, chosen_products(recipe, world):
        iterate: Callable[[int], Any] = computation(recipe, check_layout(recipe, 1), world, trains=True)
        iterate(0), iterate(1)
        found: list[dict[str, float]] = []
        for number in range(steps):
            with profile(activities=[ProfilerActivity.CPU]) as seen:
                iterate(number + 2)
            found.append(_parts(seen.key_averages()))
    return {kind: statistics.median(part[kind] for part in found) for kind in found[0]}


def _parts(events: Any) -> dict[str, float]:
    seconds = dict.fromkeys([*KINDS, "the rest"], 0.0)
    for event in events:
        seconds[_kind(event.key)] += event.self_cpu_time_total
    return {kind: value / sum(seconds.values()) for kind, value in seconds.items()}


def _kind(name: str) -> str:
    exact = next((kind for kind, words in KINDS.items() if name in words), None)
    return exact or next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "the rest")


if __name__ == "__main__":
    main()
