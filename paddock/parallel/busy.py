"""How long a process of a pipeline computes, and how long it waits for the others or sends to them."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage

from paddock.devices import adapter_of


class TimedStage(PipelineStage):
    """torch's stage, which adds up the time of its own forward and backward passes.

    Only where the host computes, or waits for what does: a device that works through a queue would need to be asked.
    """

    busy_seconds = 0.0

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(super().forward_one_chunk, *args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(super().backward_one_chunk, *args, **kwargs)

    def backward_weight_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(super().backward_weight_one_chunk, *args, **kwargs)

    def _timed(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return work(*args, **kwargs)
        finally:
            self.busy_seconds += time.perf_counter() - started


def take_busy_seconds(stages: list[TimedStage], device: torch.device) -> float | None:
    """What the stages have computed since this was last asked; None where the host cannot know."""
    total = sum(stage.busy_seconds for stage in stages)
    for stage in stages:
        stage.busy_seconds = 0.0
    return total if adapter_of(device).computes_on_host else None
