"""Run directories as training writes them, made in a moment: for tests of whoever reads runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddock.config.load import load_recipe, merge, to_yaml
from paddock.config.recipe import recipe_from_dict
from paddock.telemetry.jsonl import JsonLinesSink
from paddock.telemetry.stream import Value


def falling(step: int) -> float:
    """A loss that falls."""
    return 2 + 6 * math.exp(-step / 40)


class MadeRun:
    """A run directory, attempt by attempt."""

    def __init__(self, path: Path, recipe: str = "gpt2/tiny", total_steps: int = 100, **changes: Any) -> None:
        self.path, self._recipe, self._total, self._changes = path, recipe, total_steps, changes
        self.attempts = 0
        self.now = 1_700_000_000.0

    def attempt(
        self,
        steps: range,
        *,
        ends: bool = True,
        loss: Callable[[int], float] = falling,
        every: int = 1,
        environment: dict[str, Any] | None = None,
    ) -> MadeRun:
        """Processes make these steps; then they end in order, or without a word."""
        self.attempts += 1
        self._describe(environment or {})
        sink = JsonLinesSink(
            self.path / "metrics.jsonl", attempt=self.attempts, resume_step=steps.start - 1, clock=lambda: self.now
        )
        sink.metadata("train.loss", goal="MINIMIZE", stage="TRAIN")
        sink.metadata("train.tokens_per_second", unit="tokens/s")
        sink.metadata("train.step_time", unit="s")
        sink.metadata("train.memory", unit="bytes")
        sink.metadata("val.loss", goal="MINIMIZE", stage="VAL")
        for step in steps:
            self.now += 0.5
            if step % every == 0 or step in (1, self._total):
                sink.log((0, step), self._metrics(step, loss(step)))
            if step % 25 == 0:
                sink.log((0, step), {"val.loss": loss(step) + 0.1})
        if ends:
            sink.log((), {"summary.tokens_per_second": 2048.0})
        sink.close()
        return self

    def checkpoint(self, step: int, *names: str, best: float = 2.5, size: int = 1000) -> MadeRun:
        """A checkpoint as far as its description goes, with bytes in the place of tensors."""
        folder = self.path / "checkpoints"
        place = folder / f"step-{step:08d}"
        place.mkdir(parents=True)
        about = {"step": step, "best": {"loss": best}, "best_step": step, "best_of": {"measure": "loss"}}
        (place / "checkpoint.json").write_text(json.dumps(about))
        (place / "shard-00000.safetensors").write_bytes(bytes(size))
        for name in names:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(place.name)
        return self

    def _metrics(self, step: int, loss: float) -> dict[str, Value]:
        metrics: dict[str, Value] = {"train.loss": loss, "train.lr": 1e-3, "train.memory": 4.2e8}
        timed = {"train.tokens_per_second": 2048.0, "train.step_time": 0.5, "train.ips": 16.0}
        return metrics | (timed if step > 2 else {})

    def _describe(self, environment: dict[str, Any]) -> None:
        recipe = recipe_from_dict(merge(load_recipe(self._recipe).to_dict(), self._changes))
        command = ["paddock", "train", self._recipe] if self.attempts == 1 else ["paddock", "resume", str(self.path)]
        about = {
            "command": command,
            "processes": {"nproc_per_node": 1, "nnodes": 1},
            "device": "cpu",
            "total_steps": self._total,
            "paddock": "0.1.0",
            "torch": "2.13.0",
            **environment,
        }
        for place in (self.path, self.path / "attempts" / str(self.attempts)):
            place.mkdir(parents=True, exist_ok=True)
            (place / "config.yaml").write_text(to_yaml(recipe), encoding="utf-8")
            (place / "environment.json").write_text(json.dumps(about), encoding="utf-8")
