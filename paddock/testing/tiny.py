"""A recipe that trains in a second."""

from __future__ import annotations

from pathlib import Path

from paddock.telemetry.jsonl import metrics_of, read_metrics

TINY = [
    *("gpt2/tiny", "--model.layers", "2", "--model.hidden", "32", "--model.heads", "4", "--model.vocab", "512"),
    *("--model.context", "32", "--data.sequence-length", "32", "--batch.micro", "2", "--batch.global", "8"),
    *("--steps", "6", "--schedule.warmup", "2", "--evaluate.every", "3", "--evaluate.batches", "2"),
    *("--checkpoint.every", "3", "--log.every", "1"),
]
"""`paddock train` arguments: the quick start's recipe, much smaller."""


def losses(run_dir: Path, name: str = "train.loss") -> list[float]:
    """The values of one metric over a run, from its metrics.jsonl; of steps that it did again, the last ones."""
    records = read_metrics(run_dir / "metrics.jsonl")
    return [metrics[name] for metrics in map(metrics_of, records) if name in metrics]
