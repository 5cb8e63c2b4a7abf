"""One optimizer step in any layout: gradients, their norm, clipping, the update, and what to do about bad numbers.

The training loop runs it, and so does the check that layouts agree: what is compared is what trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from paddock.errors import NumericsError
from paddock.parallel.engine import Engine
from paddock.parallel.placement import to_device
from paddock.parallel.seeds import seed_step
from paddock.parallel.world import World
from paddock.tasks.task import Batch
from paddock.training.config import OptimizerConfig, ScheduleConfig
from paddock.training.numerics import explain, most_telling
from paddock.training.optimizer import set_learning_rate
from paddock.training.precision import LossScale
from paddock.training.schedule import learning_rate


@dataclass(frozen=True)
class StepSettings:
    """What a step needs of a recipe."""

    total_steps: int
    seed: int
    optimizer: OptimizerConfig
    schedule: ScheduleConfig


@dataclass(frozen=True)
class StepResult:
    """What all processes know after a step."""

    loss: float
    norm: float
    """Of the gradient, before clipping."""
    rate: float


class TrainingStep:
    """Takes the model of an engine one optimizer step further, on all processes together."""

    def __init__(
        self,
        settings: StepSettings,
        *,
        engine: Engine,
        optimizer: Optimizer,
        autocast: torch.autocast,
        loss_scale: LossScale,
        world: World,
        finish: Callable[[Batch], Batch] = lambda batch: batch,
    ) -> None:
        self.settings, self._finish = settings, finish
        self._engine, self._optimizer, self._world = engine, optimizer, world
        self._autocast, self._loss_scale = autocast, loss_scale

    def run(self, step: int, batches: list[Batch], count: float, look: Callable[[], None] | None = None) -> StepResult:
        """Step number `step` (the first is 0) over this process's micro-batches, `count` loss terms in all.

        `look` is called while the gradients stand, before they are scaled and used.
        """
        settings, scale = self.settings, self._loss_scale
        rate = learning_rate(settings.schedule, settings.optimizer.lr, step, settings.total_steps)
        set_learning_rate(self._optimizer, rate)
        moved = [self._finish(to_device(batch, self._world.device)) for batch in batches]
        self._seed(step)
        loss_sum = self._engine.forward_backward(moved, scale.value / count, self._autocast)
        norm = self._engine.gradient_norm() / scale.value
        loss = self._world.total([loss_sum])[0] / count
        if look is not None:
            look()
        if math.isfinite(norm) and math.isfinite(loss):
            clip = settings.optimizer.clip
            factor = clip / (norm + 1e-6) if clip is not None and norm > clip else 1.0
            self._engine.scale_gradients(factor / scale.value)
            self._optimizer.step()
            scale.succeeded()
        elif scale.can_skip and math.isfinite(loss):
            scale.overflowed()
        else:
            self._fail(step, moved, loss, norm)
        self._optimizer.zero_grad(set_to_none=True)
        return StepResult(loss, norm, rate)

    def _seed(self, step: int) -> None:
        mesh = self._engine.mesh
        seed_step(self.settings.seed, step, mesh.data_rank, mesh.pipeline_rank)

    def _fail(self, step: int, batches: list[Batch], loss: float, norm: float) -> None:
        """Say where the numbers went wrong; the last checkpoint is from before this step."""

        def run() -> None:
            self._seed(step)
            self._engine.forward(batches, self._autocast)

        with torch.compiler.set_stance("force_eager"):
            told = self._world.gather(explain(self._engine.models, run))
        raise NumericsError(
            f"step {step + 1}: loss {loss}, gradient norm {norm}",
            why=most_telling(told),
            fix="lower --optimizer.lr, set --optimizer.clip 1.0, lengthen --schedule.warmup, or look at the data; "
            "the run can go on from its last checkpoint with --checkpoint.load auto",
        )
