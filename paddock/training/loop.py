"""The training loop: steps, evaluations, checkpoints, and a clean stop. It knows a task, not a model.

Nothing in it depends on how many processes there are beyond three agreements: the global number of loss terms
(before a step), the global loss (after it), and whether to stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer

from paddock.checkpoint.directory import CheckpointDirectory
from paddock.checkpoint.tensors import tensors_of
from paddock.data.loader import StepLoader
from paddock.data.sampler import Sampler
from paddock.errors import NumericsError
from paddock.evaluation.held_out import evaluate, move
from paddock.parallel.engine import Engine
from paddock.parallel.seeds import seed_step
from paddock.parallel.world import World
from paddock.tasks.task import Batch, Task
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stream import MetricStream
from paddock.training.batch import BatchPlan
from paddock.training.config import OptimizerConfig, ScheduleConfig
from paddock.training.numerics import explain
from paddock.training.optimizer import set_learning_rate
from paddock.training.precision import LossScale
from paddock.training.schedule import learning_rate


@dataclass(frozen=True)
class LoopSettings:
    """What the loop needs of a recipe."""

    total_steps: int
    seed: int
    batch: BatchPlan
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    evaluate_every: int | None
    evaluate_samples: int | None
    checkpoint_every: int | None
    log_every: int
    flops_per_sample: float
    loader_workers: int
    describe: dict[str, Any] = field(default_factory=dict)
    """Kept in every checkpoint: the recipe and the versions."""


@dataclass
class Progress:
    """How far a run is; all of it is in its checkpoints."""

    step: int = 0
    samples: int = 0
    best_loss: float = math.inf
    best_step: int = 0
    loss: float = math.nan
    """Of the last step."""
    stopped_by: str | None = None


class TrainingLoop:
    """Runs a model from where its progress stands to the end, or until it is asked to stop."""

    def __init__(
        self,
        settings: LoopSettings,
        progress: Progress,
        *,
        task: Task,
        engine: Engine,
        optimizer: Optimizer,
        autocast: torch.autocast,
        loss_scale: LossScale,
        world: World,
        stream: MetricStream,
        meter: ThroughputMeter,
        checkpoints: CheckpointDirectory,
        stop_requested: Callable[[], str | None],
    ) -> None:
        self.settings, self.progress = settings, progress
        self._task, self._engine, self._optimizer = task, engine, optimizer
        self._autocast, self._loss_scale = autocast, loss_scale
        self._world, self._stream, self._meter = world, stream, meter
        self._checkpoints, self._stop_requested = checkpoints, stop_requested
        self._samples = task.training_samples()
        self._held_out = task.validation_samples() if settings.evaluate_every else None
        self._saved_step = self._evaluated_step = progress.step

    def run(self) -> Progress:
        """Train to the end. Returns how far it came."""
        settings, progress, batch = self.settings, self.progress, self.settings.batch
        sampler = Sampler(batch.micro, batch.accumulation, batch.data, self._engine.mesh.data_rank)
        end = progress.samples + (settings.total_steps - progress.step) * batch.total
        self._engine.train()
        workers = settings.loader_workers
        with StepLoader(self._samples, sampler, self._task.collate, progress.samples, end, workers) as loader:
            while progress.step < settings.total_steps:
                self._meter.start_step()
                batches = loader.next_step()
                self._meter.data_ready()
                counts = sum(self._task.count(batch) for batch in batches) if self._engine.speaks_for_data else 0
                count, stops = self._world.total([counts, 1.0 if self._stop_requested() else 0.0])
                if stops:
                    progress.stopped_by = self._stop_requested() or "another process"
                    break
                self._step(batches, max(count, 1.0))
                self._after_step()
        if progress.stopped_by is None and self._held_out is not None and self._evaluated_step != progress.step:
            self._evaluate()
        if self._saved_step != progress.step:
            self._save()
        return progress

    def _step(self, batches: list[Batch], count: float) -> None:
        """One optimizer step over this process's micro-batches, `count` loss terms in all."""
        settings, progress, scale = self.settings, self.progress, self._loss_scale
        rate = learning_rate(settings.schedule, settings.optimizer.lr, progress.step, settings.total_steps)
        set_learning_rate(self._optimizer, rate)
        loss_sum = self._forward_backward(batches, scale.value / count)
        norm = self._engine.gradient_norm() / scale.value
        progress.loss = self._world.total([loss_sum])[0] / count
        if math.isfinite(norm) and math.isfinite(progress.loss):
            clip = settings.optimizer.clip
            factor = clip / (norm + 1e-6) if clip is not None and norm > clip else 1.0
            self._engine.scale_gradients(factor / scale.value)
            self._optimizer.step()
            scale.succeeded()
        elif scale.can_skip and math.isfinite(progress.loss):
            scale.overflowed()
        else:
            self._fail(batches, norm)
        self._optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        progress.samples += settings.batch.total
        self._world.adapter.synchronize()
        self._meter.end_step(
            samples=settings.batch.total,
            tokens=settings.batch.total * self._task.tokens_per_sample,
            flops=settings.batch.total * settings.flops_per_sample,
        )
        if progress.step % settings.log_every == 0 or progress.step in (1, settings.total_steps):
            self._log(rate, norm)
        self._stream.tick(progress.step)

    def _forward_backward(self, batches: list[Batch], factor: float) -> float:
        """Gradients of `factor` × the summed loss; returns this process's contribution to the sum."""
        self._seed()
        return self._engine.forward_backward(
            [move(batch, self._world.device) for batch in batches], factor, self._autocast
        )

    def _seed(self) -> None:
        mesh = self._engine.mesh
        seed_step(self.settings.seed, self.progress.step, mesh.data_rank, mesh.pipeline_rank)

    def _after_step(self) -> None:
        """Evaluate and save when it is time; a checkpoint knows how good it is, so evaluation comes first."""
        settings, step = self.settings, self.progress.step
        due = settings.checkpoint_every is not None and step % settings.checkpoint_every == 0
        if self._held_out is not None and (due or step % (settings.evaluate_every or 1) == 0):
            self._evaluate()
        if due:
            self._save()

    def _evaluate(self) -> None:
        assert self._held_out is not None
        metrics = evaluate(
            self._task,
            self._engine,
            self._held_out,
            self._world,
            self.settings.batch.micro,
            self._autocast,
            self.settings.evaluate_samples,
        )
        progress = self.progress
        self._evaluated_step = progress.step
        if metrics["loss"] < progress.best_loss:
            progress.best_loss, progress.best_step = metrics["loss"], progress.step
        self._stream.log(self._position(), {f"val.{name}": value for name, value in metrics.items()})

    def _save(self) -> None:
        progress = self.progress
        description = {
            "samples": progress.samples,
            "best_loss": progress.best_loss if math.isfinite(progress.best_loss) else None,
            "best_step": progress.best_step,
            "loss_scale": self._loss_scale.state(),
            **self.settings.describe,
        }
        tensors = tensors_of(self._engine.models, self._optimizer)
        best = self._held_out is not None and progress.best_step == progress.step
        self._checkpoints.save(progress.step, tensors, description, best)
        self._saved_step = progress.step
        self._stream.flush()

    def _log(self, rate: float, norm: float) -> None:
        data: dict[str, float] = {
            "train.loss": self.progress.loss,
            "train.lr": rate,
            "train.grad_norm": norm,
            **{f"train.{name}": value for name, value in self._meter.window().items()},
        }
        memory = self._world.adapter.memory_used()
        if memory is not None:
            data["train.memory"] = memory
        if self._loss_scale.value != 1.0 or self._loss_scale.skipped:
            data["train.loss_scale"] = self._loss_scale.value
            data["train.skipped_steps"] = self._loss_scale.skipped
        self._stream.log(self._position(), data)

    def _position(self) -> tuple[int, int]:
        return int(self.progress.samples / self._samples.samples_per_epoch), self.progress.step

    def _fail(self, batches: list[Batch], norm: float) -> None:
        """Say where the numbers went wrong; the last checkpoint is from before this step."""

        def run() -> None:
            self._seed()
            self._engine.forward([move(batch, self._world.device) for batch in batches], self._autocast)

        with torch.compiler.set_stance("force_eager"):
            told = self._world.gather(explain(self._engine.models, run))
        # Prefer a process that saw a module go wrong over one that only received bad gradients.
        told.sort(key=lambda text: "first module" not in text)
        raise NumericsError(
            f"step {self.progress.step + 1}: loss {self.progress.loss}, gradient norm {norm}",
            why=told[0],
            fix="lower --optimizer.lr, set --optimizer.clip 1.0, lengthen --schedule.warmup, or look at the data; "
            "the run can go on from its last checkpoint with --checkpoint.load auto",
        )
