"""GPT-2 124M over two processes in every kind of layout, and T5-small in two stages, beside one process on both cores.

All train the same global batch with `paddock train`, one after the other, in rounds; the fastest round counts. A
pipeline of two stages with eight micro-batches can reach 8/9 of one process at most: the rest is its bubble.
Run: python benchmarks/layouts.py [--workloads gpt2 t5] [--rounds 2] [--steps 3]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from report import Row, keep_part

MICRO, GLOBAL = 2, 16
TWO = ["--nproc-per-node", "2"]
ALONE = "one process"
PIPELINE = "pipeline 2, 8 micro-batches"
BUBBLE = 1 / 9
"""Of a pipeline of two stages with eight micro-batches: (stages - 1) / (micro-batches + stages - 1)."""


@dataclass(frozen=True)
class Workload:
    """A recipe, and its layouts beside one process: flags, and the part of its speed that is wanted."""

    title: str
    flags: list[str]
    layouts: dict[str, tuple[list[str], str]]


WORKLOADS = {
    "gpt2": Workload(
        "GPT-2 124M",
        ["gpt2/117m", "--data.sequence-length", "256"],
        {
            "data 2": (TWO, "≥ 0.90"),
            PIPELINE: ([*TWO, "--parallel.pipeline", "2"], "≥ 0.80"),
            "tensor 2": ([*TWO, "--parallel.tensor", "2"], "≥ 0.70"),
            "data 2, shard parameters": ([*TWO, "--parallel.shard", "parameters"], ""),
            "tensor 2, sequence": ([*TWO, "--parallel.tensor", "2", "--parallel.sequence"], ""),
        },
    ),
    "t5": Workload(
        "T5-small",
        ["t5/small", "--precision.compute", "float32", "--tokenizer.kind", "none", "--tokenizer.model", "None"],
        {PIPELINE: ([*TWO, "--parallel.pipeline", "2"], "≥ 0.80")},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.workloads:
        keep_part(__file__, measured(WORKLOADS[name], arguments.rounds, arguments.steps))


def measured(workload: Workload, rounds: int, steps: int) -> list[Row]:
    """Its rows: the speed of every layout, and what part that is of one process's."""
    layouts = {ALONE: ([], "")} | workload.layouts
    speeds: dict[str, list[float]] = {name: [] for name in layouts}
    for number in range(rounds):
        for name, (flags, _) in layouts.items():
            speeds[name].append(samples_per_second([*workload.flags, *flags], steps))
            print(f"round {number + 1} {workload.title}, {name}: {speeds[name][-1]:.3f} samples/s", file=sys.stderr)
    best = {name: max(found) for name, found in speeds.items()}
    rows: list[Row] = [(f"{workload.title}, {name}, samples/s", speed, "") for name, speed in best.items()]
    for name, (_, goal) in workload.layouts.items():
        rows.append((f"{workload.title}, {name} ÷ one process", best[name] / best[ALONE], goal))
    beside_bubble = best[PIPELINE] / best[ALONE] / (1 - BUBBLE)
    return [*rows, (f"{workload.title}, {PIPELINE} ÷ what its bubble leaves of one process", beside_bubble, "≥ 0.90")]


def samples_per_second(flags: list[str], steps: int) -> float:
    """Of the fastest step but the first."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "paddock", "train", *flags, "--data.source", "synthetic"]
        command += ["--batch.micro", str(MICRO), "--batch.global", str(GLOBAL)]
        command += ["--steps", str(steps + 1), "--evaluate.every", "None", "--log.every", "1"]
        command += ["--checkpoint.every", "None", "--run-dir", str(run_dir)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    times = [record["data"]["train.step_time"] for record in records if "train.step_time" in record.get("data", {})]
    return GLOBAL / min(times)


if __name__ == "__main__":
    main()
