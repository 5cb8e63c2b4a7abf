"""The training loop: steps, evaluations, checkpoints, and a clean stop. It knows a task, not a model.

Nothing in it depends on how many processes there are beyond three agreements: the global number of loss terms
and tokens (before a step), the global loss (after it), and whether to stop.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from paddock.checkpoint.directory import CheckpointDirectory
from paddock.checkpoint.tensors import MODEL, tensors_of
from paddock.data.loader import StepLoader
from paddock.data.sampler import Sampler
from paddock.evaluation.held_out import evaluate
from paddock.parallel.engine import Engine
from paddock.parallel.statistics import average_statistics, statistics_of
from paddock.parallel.world import World
from paddock.tasks.task import Batch, Task
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stream import MetricStream
from paddock.training.batch import BatchPlan
from paddock.training.config import OptimizerConfig, ScheduleConfig
from paddock.training.ema import ExponentialMovingAverage
from paddock.training.precision import LossScale
from paddock.training.step import StepSettings, TrainingStep


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
    forward_flops: Callable[[int], float]
    """For a sample of that size."""
    loader_workers: int
    describe: dict[str, Any] = field(default_factory=dict)
    """Kept in every checkpoint: the recipe and the versions."""


@dataclass
class Progress:
    """How far a run is; all of it but the end is in its checkpoints."""

    step: int = 0
    samples: int = 0
    best: dict[str, float] = field(default_factory=dict)
    """The metrics of the best evaluation so far."""
    best_step: int = 0
    loss: float = math.nan
    """Of the last step."""
    stopped_by: str | None = None
    skipped: int = 0
    """Training samples that could not be read, and were replaced, since the process began; known at the end."""


@dataclass(frozen=True)
class Work:
    """What a step has to do over all processes."""

    terms: float
    """Of the loss."""
    tokens: float
    flops: float


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
        average: ExponentialMovingAverage | None = None,
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
        self._average, self._autocast, self._loss_scale = average, autocast, loss_scale
        self._world, self._stream, self._meter = world, stream, meter
        self._checkpoints, self._stop_requested = checkpoints, stop_requested
        self._optimizer_step = TrainingStep(
            StepSettings(settings.total_steps, settings.seed, settings.optimizer, settings.schedule),
            engine=engine,
            optimizer=optimizer,
            autocast=autocast,
            loss_scale=loss_scale,
            world=world,
            finish=task.finish,
        )
        self._samples = task.training_samples()
        self._held_out = task.validation_samples() if settings.evaluate_every else None
        self._saved_step = self._evaluated_step = self._logged_step = progress.step
        self._skipped: set[int] = set()

    def run(self) -> Progress:
        """Train to the end. Returns how far it came."""
        settings, progress, batch = self.settings, self.progress, self.settings.batch
        sampler = Sampler(batch.micro, batch.accumulation, batch.data, self._engine.mesh.data_rank)
        begun = progress.step
        end = progress.samples + (settings.total_steps - progress.step) * batch.total
        self._engine.train()
        workers = settings.loader_workers
        with StepLoader(self._samples, sampler, self._task.collate, progress.samples, end, workers) as loader:
            while progress.step < settings.total_steps:
                self._meter.start_step()
                batches = loader.next_step()
                self._meter.data_ready()
                stops, *work = self._world.total([1.0 if self._stop_requested() else 0.0, *self._work(batches)])
                if stops:
                    progress.stopped_by = self._stop_requested() or "another process"
                    break
                self._skipped.update(number for batch in batches for number in self._task.skipped(batch))
                self._step(batches, Work(*work))
                if progress.step == begun + 1:  # from now on the optimizer has its state
                    self._checkpoints.prepare(self._tensors())
                self._after_step()
        if progress.stopped_by is None and self._held_out is not None and self._evaluated_step != progress.step:
            self._evaluate()
        if self._saved_step != progress.step:
            self._save()
        everyone = self._world.gather(json.dumps(sorted(self._skipped)))
        progress.skipped = len(set().union(*map(json.loads, everyone)))
        return progress

    def _work(self, batches: list[Batch]) -> tuple[float, float, float]:
        """Terms, tokens and FLOPs of these micro-batches; each counts in one of the processes that share it."""
        if not self._engine.speaks_for_data:
            return 0.0, 0.0, 0.0
        task, sizes = self._task, [self._task.sample_size(batch) for batch in batches]
        rows = self.settings.batch.micro
        return (
            sum(task.count(batch) for batch in batches),
            rows * sum(sizes) if task.reads_tokens else 0.0,
            rows * 3 * sum(map(self.settings.forward_flops, sizes)),
        )

    def _step(self, batches: list[Batch], work: Work) -> None:
        """One optimizer step over this process's micro-batches."""
        settings, progress = self.settings, self.progress
        result = self._optimizer_step.run(progress.step, batches, max(work.terms, 1.0), self._checkpoints.wait_for_copy)
        progress.loss = result.loss
        progress.step += 1
        if self._average is not None:
            self._average.update(progress.step)
        progress.samples += settings.batch.total
        self._world.adapter.synchronize()
        self._meter.end_step(samples=settings.batch.total, tokens=work.tokens, flops=work.flops)
        if progress.step % settings.log_every == 0 or progress.step in (1, settings.total_steps):
            self._log(result.rate, result.norm)
        self._stream.tick(progress.step)

    def _after_step(self) -> None:
        """Evaluate and save when it is time; a checkpoint knows how good it is, so evaluation comes first.

        The best model so far is saved at once: by the next time that one is due, its weights are gone.
        """
        settings, step = self.settings, self.progress.step
        due = settings.checkpoint_every is not None and step % settings.checkpoint_every == 0
        if self._held_out is not None and (due or step % (settings.evaluate_every or 1) == 0):
            self._evaluate()
        if due or self._is_best_step():
            self._save()

    def _evaluate(self) -> None:
        assert self._held_out is not None
        self._checkpoints.wait_for_copy()
        self._join_statistics()
        with nullcontext() if self._average is None else self._average.in_use():
            metrics = evaluate(
                self._task,
                self._engine,
                self._held_out,
                self._world,
                self.settings.batch.micro,
                self._autocast,
                self.settings.evaluate_samples,
                workers=self.settings.loader_workers,
            )
        progress = self.progress
        self._evaluated_step = progress.step
        if self._is_best(metrics):
            progress.best = {name: value for name, value in metrics.items() if math.isfinite(value)}
            progress.best_step = progress.step
        self._stream.log(self._position(), {f"val.{name}": value for name, value in metrics.items()})
        if (line := self._task.summary(metrics)) is not None:
            self._stream.message(line)

    def _is_best(self, metrics: dict[str, float]) -> bool:
        name, goal = next(iter(self._task.measures.items()))
        value, best = metrics[name], self.progress.best.get(name)
        if best is None:
            return math.isfinite(value)
        return value < best if goal == "MINIMIZE" else value > best

    def _is_best_step(self) -> bool:
        """Whether this step's evaluation is the best so far."""
        return self._held_out is not None and self.progress.best_step == self.progress.step

    def _save(self) -> None:
        progress = self.progress
        description = {
            "samples": progress.samples,
            "best": progress.best,
            "best_step": progress.best_step,
            "loss_scale": self._loss_scale.state(),
            **self.settings.describe,
        }
        self._join_statistics()
        self._stream.flush()  # before: whoever goes on from this checkpoint finds all that led to it
        self._checkpoints.save(progress.step, self._tensors(), description, self._is_best_step(), self._measured())
        self._saved_step = progress.step

    def _tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint holds."""
        tensors = tensors_of(self._engine.models, self._optimizer)
        return tensors if self._average is None else tensors | dict(self._average.named_tensors())

    def _measured(self) -> set[str]:
        """The names of what forward passes change."""
        return {MODEL + name for model in self._engine.models for name, _ in model.named_buffers()}

    def _join_statistics(self) -> None:
        """Make what the replicas have measured of their samples the same everywhere."""
        averaged = [] if self._average is None else self._average.statistics
        average_statistics(statistics_of(self._engine.models) + averaged, self._engine.mesh)

    def _log(self, rate: float, norm: float) -> None:
        data: dict[str, float] = {
            "train.loss": self.progress.loss,
            "train.lr": rate,
            "train.grad_norm": norm,
            **{f"train.{name}": value for name, value in self._meter.window().items()},
        }
        data |= self._pipeline_times(data.get("train.compute_time"))
        memory = self._world.adapter.memory_used()
        if memory is not None:
            data["train.memory"] = memory
        if self._loss_scale.value != 1.0 or self._loss_scale.skipped:
            data["train.loss_scale"] = self._loss_scale.value
            data["train.skipped_steps"] = self._loss_scale.skipped
        self._stream.log(self._position(), data)

    def _pipeline_times(self, step_time: float | None) -> dict[str, float]:
        """Seconds of a step that the processes at each place of a pipeline compute, and that they wait for others
        and send to them, on average."""
        steps, self._logged_step = self.progress.step - self._logged_step, self.progress.step
        busy = self._engine.take_busy_seconds()
        if busy is None:
            return {}
        everyone = [float(told) / steps for told in self._world.gather(repr(busy))]
        if step_time is None:  # steps that only warm up
            return {}
        places = self._engine.mesh.layout.pipeline
        width = len(everyone) // places
        shares = [sum(everyone[place * width : (place + 1) * width]) / width for place in range(places)]
        times = {f"train.busy_time.{place}": share for place, share in enumerate(shares)}
        return {**times, "train.wait_time": max(0.0, step_time - sum(shares) / places)}

    def _position(self) -> tuple[int, int]:
        return int(self.progress.samples / self._samples.samples_per_epoch), self.progress.step
