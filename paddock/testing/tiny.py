"""A recipe that trains in a second, and ways to run commands on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paddock.telemetry.jsonl import metrics_of, read_metrics

TINY = [
    *("gpt2/tiny", "--model.layers", "2", "--model.hidden", "32", "--model.heads", "4", "--model.vocab", "512"),
    *("--model.context", "32", "--data.sequence-length", "32", "--batch.micro", "2", "--batch.global", "8"),
    *("--steps", "6", "--schedule.warmup", "2", "--evaluate.every", "3", "--evaluate.batches", "2"),
    *("--checkpoint.every", "3", "--log.every", "1"),
]
"""`paddock train` arguments: the quick start's recipe, much smaller."""


def paddock(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "paddock", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def losses(run_dir: Path, name: str = "train.loss") -> list[float]:
    """The values of one metric over a run, from its metrics.jsonl; of steps that it did again, the last ones."""
    found = map(metrics_of, read_metrics(run_dir / "metrics.jsonl"))
    return [metrics[name] for metrics in found if name in metrics]
