"""Every family's training, and ResNet-50's and BERT's forward passes, beside other libraries at their default and their
best, by `paddock benchmark --compare`.

Run: python benchmarks/beside_peers.py [--workloads gpt2 bert …] [--turns 8]; benchmarks/README.md says how it measures.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "beside-peers.csv"
TRAIN = ["--benchmark.train"]
GPT2 = ["gpt2/117m", "--data.sequence-length", "512", "--batch.micro", "2", "--batch.global", "2", *TRAIN]
BERT = ["bert/base-uncased-squad", "--batch.micro", "4", "--batch.global", "4"]
T5 = ["t5/small", "--batch.micro", "4", "--batch.global", "4", "--optimizer.name", "adamw", "--optimizer.lr", "1e-4"]
T5 += ["--precision.compute", "float32", *TRAIN]
RESNET = ["resnet/50", "--data.source", "synthetic"]
WITHOUT, BRAIN = ["--model.dropout", "0"], ["--precision.compute", "bfloat16"]
WORKLOADS: dict[str, tuple[str, list[str]]] = {
    "gpt2": ("GPT-2 124M training, 2 × 512, dropout 0.1", GPT2),
    "gpt2-no-dropout": ("GPT-2 124M training, 2 × 512, no dropout", [*GPT2, *WITHOUT]),
    "gpt2-bfloat16": ("GPT-2 124M training, 2 × 512, no dropout, bfloat16", [*GPT2, *WITHOUT, *BRAIN]),
    "bert": ("BERT-base training, 4 × 384, dropout 0.1", [*BERT, *TRAIN]),
    "bert-no-dropout": ("BERT-base training, 4 × 384, no dropout", [*BERT, *TRAIN, *WITHOUT]),
    "bert-forward": ("BERT-base forward, 4 × 384", BERT),
    "t5": ("T5-small training, 4 × (512 + 128), dropout 0.1", T5),
    "t5-no-dropout": ("T5-small training, 4 × (512 + 128), no dropout", [*T5, *WITHOUT]),
    # All sides of an mT5 are more than 24 GB: the peer's settings one at a time.
    "mt5": ("mT5-small training, 4 × (512 + 128), dropout 0.1", ["mt5/small", *T5[1:]]),
    "resnet": ("ResNet-50 training, 16", [*RESNET, "--batch.micro", "16", "--batch.global", "16", *TRAIN]),
    "resnet-forward": ("ResNet-50 forward, 32", [*RESNET, "--batch.micro", "32", "--batch.global", "32"]),
}
ONE_AT_A_TIME = ("mt5",)
SETTINGS = ("default", "tuned", "compiled", "compiled-whole")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--peer", default="hf")
    arguments = parser.parse_args()
    rows = kept()
    for name in arguments.workloads:
        title, flags = WORKLOADS[name]
        together = [[setting] for setting in SETTINGS] if name in ONE_AT_A_TIME else [list(SETTINGS)]
        for settings in together:
            for row in measured(title, flags, settings, arguments.peer, arguments.turns):
                rows[row["workload"], row["beside"]] = row
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        keep(list(rows.values()))


def measured(title: str, flags: list[str], settings: list[str], peer: str, turns: int) -> list[dict[str, Any]]:
    """A row for every setting of the peer."""
    command = [sys.executable, "-m", "paddock", "benchmark", *flags, "--compare", peer, "--json"]
    command += ["--benchmark.iterations", str(turns), "--benchmark.peer-settings", *settings]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    ours, part = found["sides"]["paddock"], found["fraction_of_product"]
    return [
        {
            "workload": title,
            "beside": name,
            "ratio": f"{ratio['median']:.3f}",
            "low": f"{ratio['low']:.3f}",
            "high": f"{ratio['high']:.3f}",
            "memory ratio": f"{found['memory_ratios'][name]:.2f}",
            "samples/s": f"{ours['samples_per_second']:.3f}",
            "of the best product": f"{part['median']:.2f}",
            "best product, GFLOP/s": f"{found['product_flops'] / 1e9:.0f}",
            "turns": found["turns"],
            "threads": found["threads"],
            "processor": found["processor"],
            "torch": found["versions"]["torch"].partition("+")[0],
            "date": date.today().isoformat(),
        }
        for name, ratio in found["ratios"].items()
    ]


def kept() -> dict[tuple[str, str], dict[str, Any]]:
    """What was measured before; a workload that is measured again replaces its rows."""
    if not RESULTS.exists():
        return {}
    with open(RESULTS, newline="", encoding="utf-8") as stream:
        return {(row["workload"], row["beside"]): row for row in csv.DictReader(stream)}


def keep(rows: list[dict[str, Any]]) -> None:
    with open(RESULTS, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
