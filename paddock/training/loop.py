"""The training loop: steps, evaluations, checkpoints, and a clean stop. It knows a task, not a model.

Nothing in it depends on how many processes there are. While the device computes a step, the host reads the next one;
what ranks agree on travels with that (`feed.py`), and loss and norm are read once a step (`step.py`).
"""

from __future__ import annotations

import json
import math
from contextlib import nullcontext

from paddock.activity import CALLBACK, DATA, EVALUATION, FORWARD, SAVING, UPDATE
from paddock.activity import here as activity
from paddock.data.loading.loader import StepLoader
from paddock.data.loading.sampler import Sampler
from paddock.evaluation.held_out import evaluate
from paddock.parallel.pipeline.stage import Batch
from paddock.parallel.sharding import average_statistics, statistics_of
from paddock.phases import phase
from paddock.process import progress as note_progress
from paddock.process import unhurried
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stop import wish_of
from paddock.telemetry.stream import MetricStream
from paddock.training.callbacks import Callback
from paddock.training.feed import StepFeed, StepInput
from paddock.training.run import Progress, TrainingRun
from paddock.training.step import StepResult


class TrainingLoop:
    """Runs a model from where its progress stands to the end, or until it is asked to stop."""

    def __init__(self, run: TrainingRun, stream: MetricStream, meter: ThroughputMeter) -> None:
        self._run, self._stream, self._meter = run, stream, meter
        self._samples = run.task.training_samples()
        self._held_out = run.task.validation_samples() if run.recipe.evaluate.every is not None else None
        self._saved_step = self._evaluated_step = run.progress.step
        self._unlogged: StepResult | None = None
        """What the newest step came to, where nothing is logged of it."""

    def train(self) -> Progress:
        """Train to the end. Returns how far it came."""
        run, progress = self._run, self._run.progress
        self._tell("on_start")
        run.engine.train()
        with self._loader() as loader:
            feed = self._feed(loader)
            if progress.step < run.total_steps:
                self._stream.tick(progress.step)  # the first step may take minutes, in which there is nothing to log
            while progress.step < run.total_steps:
                step = progress.step + 1
                self._meter.start_step()
                activity.begin(f"waiting for the data of step {step}", DATA)
                work = feed.take()
                if work.stops:
                    run.agree_on_stop()
                    self._log_last_step()
                    break
                activity.begin(f"forward and backward of step {step}", FORWARD)
                run.step.launch(progress.step, work.batches, work.terms)
                activity.begin(f"reading the data of step {step + 1}", DATA)
                feed.prepare()  # the next step, while the device computes this one
                activity.begin(f"loss and update of step {step}", UPDATE)
                result = run.step.complete(before_update=run.checkpoints.wait_for_copy)
                self._count(result, work)
                self._after_step()
        if progress.stopped_by is None and self._held_out is not None and self._evaluated_step != progress.step:
            self._evaluate()
        if self._saved_step != progress.step:
            self._save()
        activity.begin("agreeing on the end", UPDATE)
        skipped = run.world.all_gather(json.dumps(sorted(feed.skipped)))
        progress.skipped = len(set().union(*map(json.loads, skipped)))
        self._tell("on_end")
        return progress

    def _loader(self) -> StepLoader:
        run, batch, begun = self._run, self._run.batch, self._run.progress
        sampler = Sampler(batch.micro, batch.accumulation, batch.data, run.engine.mesh.data_rank)
        end = begun.samples + (run.total_steps - begun.step) * batch.total
        workers = run.recipe.data.workers
        return StepLoader(self._samples, sampler, run.task.collate, begun.samples, end, workers)

    def _feed(self, loader: StepLoader) -> StepFeed:
        run = self._run
        steps = run.total_steps - run.progress.step
        return StepFeed(
            loader,
            run.task,
            run.world,
            steps=steps,
            counts=run.engine.leads_replica,
            flops_of=self._flops,
            stop_requested=lambda: run.stop_reason,
        )

    def _flops(self, batch: Batch) -> float:
        """Of training on a micro-batch: a forward pass, and a backward pass of twice the work."""
        return 3 * self._run.batch.micro * self._run.forward_flops(self._run.task.sample_shape(dict(batch)))

    def _count(self, result: StepResult, work: StepInput) -> None:
        """A step is done: the run is further, and every so often says so."""
        run, progress = self._run, self._run.progress
        note_progress(progress.step + 1)
        begins = progress.step == run.begun_step
        progress.loss = result.loss
        progress.step += 1
        progress.samples += run.batch.total
        if run.ema is not None:
            run.ema.update(progress.step)
        logs = progress.step % run.recipe.log.every == 0 or progress.step in (1, run.total_steps)
        if logs:
            run.world.adapter.synchronize()
        waits = {"data_seconds": work.waited, "idle_seconds": work.idle}
        self._meter.end_step(samples=run.batch.total, tokens=work.tokens, flops=work.flops, **waits)
        metrics = self._metrics(result) if logs else None
        self._unlogged = None if logs else result
        self._tell("on_step", metrics)
        if metrics is not None:
            self._stream.log(self._position(), metrics)
        self._stream.tick(progress.step, {"train.loss": result.loss, "train.grad_norm": result.norm})
        if begins:  # from now on the optimizer has its state
            run.checkpoints.prepare(run.tensors())

    def _log_last_step(self) -> None:
        """Log the step that a stop has made the last one: what a run came to is in its records, wherever it ends."""
        if (last := self._unlogged) is not None:
            values = {"train.loss": last.loss, "train.lr": last.rate, "train.grad_norm": last.norm}
            self._stream.log(self._position(), values)

    def _after_step(self) -> None:
        """Evaluate and save when it is time; a checkpoint knows how good it is, so evaluation comes first.

        The best model so far is saved at once: by the next time that one is due, its weights are gone.
        """
        run, step = self._run, self._run.progress.step
        due = run.checkpoint_every is not None and step % run.checkpoint_every == 0
        if self._held_out is not None and (due or step % (run.evaluate_every or 1) == 0):
            self._evaluate()
        if due or self._is_best_step():
            self._save()

    def _evaluate(self) -> None:
        run, progress = self._run, self._run.progress
        assert self._held_out is not None
        activity.begin(f"evaluating step {progress.step}", EVALUATION)
        run.checkpoints.wait_for_copy()
        self._average_statistics()
        batches = run.recipe.evaluate.batches
        with phase("evaluating") as told, nullcontext() if run.ema is None else run.ema.in_use():
            metrics = evaluate(
                run.task,
                run.engine,
                self._held_out,
                run.world,
                run.batch.micro,
                None if batches is None else batches * run.batch.total,
                told.update,
                workers=run.recipe.data.workers,
                writing=run.task.writing(during_training=True),
            )
        self._evaluated_step = progress.step
        if self._is_best(metrics):
            progress.best = {name: value for name, value in metrics.items() if math.isfinite(value)}
            progress.best_step, progress.best_of = progress.step, run.measured_on
        self._tell("on_evaluate", metrics)
        self._stream.log(self._position(), {f"val.{name}": value for name, value in metrics.items()})
        if (line := run.task.summary(metrics)) is not None:
            self._stream.message(line)

    def _is_best(self, metrics: dict[str, float]) -> bool:
        name, goal = next(iter(self._run.task.measures.items()))
        value, best = metrics[name], self._run.progress.best.get(name)
        if best is None:
            return math.isfinite(value)
        return value < best if goal == "MINIMIZE" else value > best

    def _is_best_step(self) -> bool:
        """Whether this step's evaluation is the best so far."""
        return self._held_out is not None and self._run.progress.best_step == self._run.progress.step

    def _save(self) -> None:
        run, progress = self._run, self._run.progress
        activity.begin(f"saving step {progress.step}", SAVING)
        self._average_statistics()
        self._stream.flush()  # before: whoever goes on from this checkpoint finds all that led to it
        changing = run.names_of_statistics()
        with phase("saving"):
            path = run.checkpoints.save(progress.step, run.tensors(), run.description(), self._is_best_step(), changing)
        self._saved_step = progress.step
        self._tell("on_save", path)

    def _average_statistics(self) -> None:
        """Make what the replicas have measured of their samples the same everywhere."""
        run = self._run
        averaged = [] if run.ema is None else run.ema.statistics
        average_statistics(statistics_of(run.engine.models) + averaged, run.engine.mesh)

    def _metrics(self, result: StepResult) -> dict[str, float]:
        """What is logged of a step."""
        run = self._run
        metrics: dict[str, float] = {
            "train.loss": result.loss,
            "train.lr": result.rate,
            "train.grad_norm": result.norm,
            **{f"train.{name}": value for name, value in self._meter.window().items()},
        }
        memory = run.world.adapter.memory_used()
        if memory is not None:
            metrics["train.memory"] = memory
        if run.loss_scale.value != 1.0 or run.loss_scale.skipped:
            metrics["train.loss_scale"] = run.loss_scale.value
            metrics["train.skipped_steps"] = run.loss_scale.skipped
        return metrics

    def _tell(self, event: str, *details: object) -> None:
        for callback in self._run.callbacks:
            assert isinstance(callback, Callback)
            activity.begin(f"{type(callback).__name__}.{event}, a callback", CALLBACK)
            with unhurried():
                wish = wish_of(getattr(callback, event), self._run, *details)
            if wish is not None:
                self._run.stop(wish)

    def _position(self) -> tuple[int, int]:
        progress = self._run.progress
        return int(progress.samples / self._samples.samples_per_epoch), progress.step
