"""What came of a training run, as plain values, from its run directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.storage import describe_checkpoint
from paddock.telemetry.jsonl import read_metrics


def outcome_of(run_dir: Path) -> dict[str, Any]:
    """The last step and its loss, the best evaluation and its step, and the averages over the run."""
    loss: float | None = None
    averages: dict[str, float] = {}
    for record in read_metrics(run_dir / "metrics.jsonl"):
        data = record.get("data", {})
        loss = data.get("train.loss", loss)
        averages |= {name: value for name, value in data.items() if name.startswith("summary.")}
    description = describe_checkpoint(find_checkpoint(run_dir))
    return {
        "step": description["step"],
        "loss": loss,
        "best": description["best"],
        "best_step": description["best_step"],
        **{name.removeprefix("summary."): value for name, value in averages.items()},
    }
