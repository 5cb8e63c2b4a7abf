"""GPT-2 124M over two processes in every kind of layout, beside one process with both cores.

All train the same global batch with `paddock train`, one after the other, in rounds; the fastest round counts.
Run: python benchmarks/layouts.py [--rounds 2] [--steps 3]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Row, keep

MICRO, GLOBAL, SEQUENCE = 2, 16, 256
LAYOUTS = {
    "one process": ([], ""),
    "data 2": (["--nproc-per-node", "2"], "≥ 0.90"),
    "pipeline 2, 8 micro-batches": (["--nproc-per-node", "2", "--parallel.pipeline", "2"], "≥ 0.80"),
    "tensor 2": (["--nproc-per-node", "2", "--parallel.tensor", "2"], "≥ 0.70"),
    "data 2, shard parameters": (["--nproc-per-node", "2", "--parallel.shard", "parameters"], ""),
    "tensor 2, sequence": (["--nproc-per-node", "2", "--parallel.tensor", "2", "--parallel.sequence"], ""),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--layouts", nargs="*", default=list(LAYOUTS), choices=list(LAYOUTS))
    arguments = parser.parse_args()
    best: dict[str, float] = {}
    for number in range(arguments.rounds):
        for name in arguments.layouts:
            speed = tokens_per_second(LAYOUTS[name][0], arguments.steps)
            print(f"round {number + 1} {name}: {speed:.1f} tokens/s", file=sys.stderr, flush=True)
            best[name] = max(speed, best.get(name, 0.0))
    rows: list[Row] = [(f"{name}, tokens/s", speed, "") for name, speed in best.items()]
    alone = best.get("one process", math.nan)
    rows += [(f"{name} ÷ one process", best[name] / alone, LAYOUTS[name][1]) for name in best if name != "one process"]
    keep(__file__, rows)


def tokens_per_second(layout: list[str], steps: int) -> float:
    """Of the fastest step but the first."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "paddock", "train", "gpt2/117m", "--data.source", "synthetic"]
        command += ["--data.sequence-length", str(SEQUENCE), "--batch.micro", str(MICRO), "--batch.global", str(GLOBAL)]
        command += ["--steps", str(steps + 1), "--evaluate.every", "None", "--log.every", "1"]
        command += ["--checkpoint.every", "None", "--run-dir", str(run_dir), *layout]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    times = [record["data"]["train.step_time"] for record in records if "train.step_time" in record.get("data", {})]
    return GLOBAL * SEQUENCE / min(times)


if __name__ == "__main__":
    main()
