"""One process's training run, assembled from a recipe: model, task, optimizer, telemetry, loop."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paddock.checkpoint.directory import CheckpointDirectory, find_checkpoint
from paddock.checkpoint.huggingface import holds_weights, load_weights
from paddock.checkpoint.loading import load_models, load_weights_only, needs_new_head
from paddock.checkpoint.position import POSITION, check_optimizer, check_position, describe_position
from paddock.checkpoint.storage import describe_checkpoint
from paddock.config.recipe import Recipe
from paddock.config.rules import Arithmetic
from paddock.devices import measure_gemm_flops
from paddock.jobs.footprint import Footprint, bubble_of, draw, footprint
from paddock.jobs.imagenet_example import resume_imagenet_example
from paddock.jobs.run_directory import versions
from paddock.jobs.task import build_task
from paddock.jobs.train import continues, total_steps
from paddock.launch.environment import launch_flags
from paddock.launch.stop import StopRequest
from paddock.models.assembly import assemble, fill
from paddock.parallel.engine import Engine
from paddock.parallel.legality import may_compile
from paddock.parallel.mesh import build_mesh
from paddock.parallel.world import World
from paddock.tasks.task import Prepared, Task
from paddock.telemetry import format as show
from paddock.telemetry.cards import end_card, run_card
from paddock.telemetry.console import ConsoleSink
from paddock.telemetry.jsonl import JsonLinesSink
from paddock.telemetry.logfile import LogFileSink
from paddock.telemetry.meter import ThroughputMeter
from paddock.telemetry.stream import MetricStream, Sink
from paddock.telemetry.tensorboard import TensorBoardSink
from paddock.training.compilation import compile_blocks
from paddock.training.ema import ExponentialMovingAverage
from paddock.training.loop import LoopSettings, Progress, TrainingLoop
from paddock.training.optimizer import build_optimizer
from paddock.training.precision import LossScale, autocast_for
from paddock.training.schedule import in_steps, period


class TrainingRun:
    """Everything that a recipe stands for, in this process."""

    def __init__(
        self,
        recipe: Recipe,
        arithmetic: Arithmetic,
        prepared: Prepared,
        run_dir: Path,
        world: World,
        stop: StopRequest,
    ) -> None:
        self.recipe, self.arithmetic, self.run_dir, self.world = recipe, arithmetic, run_dir, world
        self._stop = stop
        self.task = build_task(recipe, prepared)
        self._can_be_tried = prepared.tokenizer is not None or not self.task.reads_tokens
        self._data_position = describe_position(recipe.train.seed, self.task.fingerprint())
        samples_per_epoch = self.task.training_samples().samples_per_epoch
        self.total_steps = total_steps(recipe, arithmetic, samples_per_epoch)
        self._steps_per_epoch = samples_per_epoch / arithmetic.batch.total
        self.loss_scale = LossScale(recipe.precision, world.adapter)
        self.autocast = autocast_for(recipe.precision, world.adapter)
        self.progress = Progress()
        asynchronous = recipe.checkpoint.asynchronous
        self.checkpoints = CheckpointDirectory(run_dir, recipe.checkpoint.keep, world.speaks, asynchronous)
        self._compiled = False
        self.engine = lay_out(recipe, arithmetic, world, self._compile)
        self.optimizer = build_optimizer(self.engine.trained, recipe.optimizer)
        self.average = None
        if recipe.train.ema is not None:
            self.average = ExponentialMovingAverage(self.engine.models, recipe.train.ema, self.engine.parts.values())
        self._has_average = False
        self._begun_from = self._load()
        self._begun_step = self.progress.step
        if self.average is not None and not self._has_average:
            self.average.restart()

    def execute(self) -> Progress:
        """Train, and say what came of it."""
        recipe, world = self.recipe, self.world
        peak = self._peak_flops()
        meter = ThroughputMeter(peak_flops=peak, devices=world.size)
        shares = self._shares()
        if world.speaks:
            run_card(f"train {recipe.model.family}", self._card(peak, shares))
        with MetricStream(self._sinks()) as stream:
            describe_metrics(stream, self.task)
            loop = TrainingLoop(
                self._settings(),
                self.progress,
                task=self.task,
                engine=self.engine,
                optimizer=self.optimizer,
                average=self.average,
                autocast=self.autocast,
                loss_scale=self.loss_scale,
                world=world,
                stream=stream,
                meter=meter,
                checkpoints=self.checkpoints,
                stop_requested=lambda: self._stop.requested,
            )
            started = time.perf_counter()
            with self.checkpoints:
                progress = loop.run()
            summary = {f"summary.{name}": value for name, value in meter.summary().items()}
            best = progress.best.get(next(iter(self.task.measures)))
            if best is not None:
                summary["summary.best_metric"] = best
            if progress.skipped:
                summary["summary.skipped_samples"] = progress.skipped
            stream.log((), summary)
        if world.speaks:
            self._show_end(progress, summary, time.perf_counter() - started)
        return progress

    def _load(self) -> str:
        """Bring in what the recipe says the run begins from; returns a description of it."""
        load = self.recipe.checkpoint.load
        if load is None:
            return f"initial weights, seed {self.recipe.train.seed}"
        if continues(self.recipe.checkpoint, self.run_dir):
            path = self.checkpoints.latest()
            if path is None:
                return f"initial weights, seed {self.recipe.train.seed} ({self.run_dir} has no checkpoint yet)"
        elif holds_weights(Path(load).expanduser()):
            path = Path(load).expanduser()
            if self.recipe.checkpoint.resume:
                told = (self._settings(), self._steps_per_epoch, self.engine.models, self.optimizer)
                self.progress, begun_from = resume_imagenet_example(path, self.recipe, *told)
                return begun_from
            remarks = [load_weights(model, path, new_heads=True) for model in self.engine.models]
            return "; ".join([f"weights of {load}", *remarks[0]])
        else:
            path = find_checkpoint(load)
            if self.recipe.checkpoint.weights_only or needs_new_head(path, self.recipe.model):
                return "; ".join([f"weights of {path}", *load_weights_only(path, self.engine.models)])
        description = describe_checkpoint(path)
        check_optimizer(path, description, self.recipe.optimizer.name)
        check_position(path, description, self._data_position)
        averages = [] if self.average is None else self.average.named_tensors()
        self._has_average = load_models(path, self.engine.models, self.optimizer, averages)
        self._restore(description)
        return f"{path}, step {self.progress.step}"

    def _restore(self, description: dict[str, Any]) -> None:
        self.progress.step = description["step"]
        self.progress.samples = description["samples"]
        self.progress.best = description["best"]
        self.progress.best_step = description["best_step"]
        self.loss_scale.restore(description["loss_scale"])

    def _compile(self, blocks: list[nn.Module]) -> None:
        recipe = self.recipe
        mode = recipe.train.compile if may_compile(recipe.parallel) else "off"
        self._compiled = compile_blocks(blocks, mode, self.world.adapter, recipe.model.num_parameters())

    def _settings(self) -> LoopSettings:
        recipe, batch = self.recipe, self.arithmetic.batch
        batches = recipe.evaluate.batches
        return LoopSettings(
            total_steps=self.total_steps,
            seed=recipe.train.seed,
            batch=batch,
            optimizer=recipe.optimizer,
            schedule=in_steps(recipe.schedule, self._steps_per_epoch),
            evaluate_every=period(recipe.evaluate.every, self._steps_per_epoch),
            evaluate_samples=None if batches is None else batches * batch.total,
            checkpoint_every=period(recipe.checkpoint.every, self._steps_per_epoch),
            log_every=recipe.log.every,
            forward_flops=cache(recipe.model.forward_flops),
            loader_workers=recipe.data.workers,
            describe={"recipe": recipe.to_dict(), "versions": versions(), POSITION: self._data_position},
        )

    def _sinks(self) -> list[Sink]:
        if not self.world.speaks:
            return []
        step = self.progress.step
        sinks: list[Sink] = [
            JsonLinesSink(self.run_dir / "metrics.jsonl", resume_step=step),
            LogFileSink(self.run_dir / "log.txt", self.total_steps),
            ConsoleSink(self.total_steps, start_step=step),
        ]
        if self.recipe.log.file is not None:
            sinks.append(LogFileSink(Path(self.recipe.log.file), self.total_steps))
        if self.recipe.log.tensorboard:
            sinks.append(TensorBoardSink(self.run_dir / "tensorboard"))
        return sinks

    def _peak_flops(self) -> float | None:
        """The devices' peak over the whole job, if it is known or may be measured."""
        adapter, compute = self.world.adapter, self.recipe.precision.compute
        peak = adapter.peak_flops(compute)
        if peak is None and self.recipe.log.measure_peak:
            peak = measure_gemm_flops(adapter, compute)
        return None if peak is None else peak * self.world.size

    def _shares(self) -> list[Footprint]:
        """What the processes at each place in the pipeline hold: of every place, the one that holds most."""
        told = self.world.gather(json.dumps(asdict(footprint(self.recipe, self.arithmetic, self.engine))))
        everyone = [Footprint(**json.loads(text)) for text in told]
        width = self.world.size // self.arithmetic.layout.pipeline
        places = [everyone[first : first + width] for first in range(0, self.world.size, width)]
        return [max(place, key=lambda share: share.memory) for place in places]

    def _card(self, peak: float | None, shares: list[Footprint]) -> list[tuple[str, str]]:
        recipe, world = self.recipe, self.world
        parameters = recipe.model.num_parameters()
        memory = max(share.memory for share in shares)
        count = torch.get_num_threads()
        each = " each" if world.size > 1 else ""
        threads = f", {count} thread{'s' if count > 1 else ''}{each}" if world.device.type == "cpu" else ""
        rows = [
            ("model", f"{recipe.model.family}, {show.count(parameters)} parameters"),
            ("layout", f"{self.arithmetic.layout} = {world.size} process{'es' if world.size > 1 else ''}"),
            ("batch", f"{self.arithmetic.batch}; {recipe.data.describe_sample()}"),
            ("data", recipe.data.describe()),
            ("steps", f"{self.progress.step} → {self.total_steps}"),
            ("begins from", self._begun_from),
            ("device", f"{world.adapter.name}{threads}" + (f", peak {show.flops(peak)}" if peak else "")),
            ("precision", recipe.precision.compute + (", compiled" if self._compiled else "")),
            (
                "memory",
                f"{show.bytes_(memory)} a process for weights, gradients and optimizer, before activations",
            ),
            ("run", str(self.run_dir)),
        ]
        if world.size > 1:
            wait = f"each waits {show.percent(bubble_of(recipe, self.arithmetic))} of a step for the others"
            words = [f"shard {recipe.parallel.shard}", f"recompute {recipe.parallel.recompute}"]
            words += [recipe.parallel.schedule, wait] if self.arithmetic.layout.pipeline > 1 else []
            rows.insert(2, ("ranks", "\n".join([", ".join(words), *draw(self.arithmetic, shares)])))
        return rows

    def _show_end(self, progress: Progress, summary: dict[str, float], seconds: float) -> None:
        trained = progress.step > self._begun_step
        rows = [("loss", f"{progress.loss:.4f} at step {progress.step}")] if trained else []
        if progress.best:
            best = ", ".join(f"{name} {value:.4f}" for name, value in progress.best.items())
            rows.append(("best", f"{best} at step {progress.best_step}"))
        if "summary.tokens_per_second" in summary:
            rows.append(("tokens/s", show.rate(summary["summary.tokens_per_second"])))
        if self.loss_scale.skipped:
            rows.append(("skipped", f"steps whose gradients float16 could not hold: {self.loss_scale.skipped}"))
        if progress.skipped:
            rows.append(("skipped", f"training samples that could not be read, and were replaced: {progress.skipped}"))
        rows += [("time", show.duration(seconds)), ("run", str(self.run_dir))]
        name = shlex.quote(str(self.run_dir))
        if progress.stopped_by is None:
            tries = [f"paddock {self.task.next_command.format(run=name)}"] if self._can_be_tried else []
            title = "done" if trained else f"nothing to do: the run is at its last step, {progress.step}, already"
            end_card(title, rows, [*tries, f"paddock evaluate {name}"])
        elif self.checkpoints.latest() is None:
            end_card(f"stopped by {progress.stopped_by} before the first step; there is nothing to save", rows, [])
        else:
            go_on = f"paddock train {name}/config.yaml --run-dir {name} --checkpoint.load auto{launch_flags()}"
            end_card(f"stopped by {progress.stopped_by}; a checkpoint is saved", rows, [go_on])


def lay_out(
    recipe: Recipe,
    arithmetic: Arithmetic,
    world: World,
    compile_blocks: Callable[[list[nn.Module]], None] | None = None,
) -> Engine:
    """The recipe's model over the processes of the job, with its initial weights."""
    engine = assemble(
        recipe.model,
        recipe.parallel,
        build_mesh(arithmetic.layout, world.rank, world.device.type),
        world.device,
        micro=arithmetic.batch.micro,
        sample_size=recipe.data.sample_size(),
        micro_batches=arithmetic.batch.accumulation,
        compile_blocks=compile_blocks,
    )
    fill(engine, recipe.train.seed)
    return engine


def describe_metrics(stream: MetricStream, task: Task) -> None:
    """Units and goals, for readers of metrics.jsonl."""
    stream.metadata("train.loss", goal="MINIMIZE", stage="TRAIN")
    stream.metadata("train.lr", stage="TRAIN")
    stream.metadata("train.grad_norm", stage="TRAIN")
    what = "samples" if task.reads_tokens else "images"
    stream.metadata("train.ips", unit=f"{what}/s", goal="MAXIMIZE", stage="TRAIN")
    stream.metadata("train.tokens_per_second", unit="tokens/s", goal="MAXIMIZE", stage="TRAIN")
    stream.metadata("train.tokens_per_second_per_device", unit="tokens/s", goal="MAXIMIZE", stage="TRAIN")
    stream.metadata("train.step_time", unit="s", goal="MINIMIZE", stage="TRAIN")
    stream.metadata("train.data_time", unit="s", goal="MINIMIZE", stage="TRAIN")
    stream.metadata("train.achieved_flops", unit="FLOP/s", goal="MAXIMIZE", stage="TRAIN")
    stream.metadata("train.memory", unit="bytes", stage="TRAIN")
    for name, goal in task.measures.items():
        stream.metadata(f"val.{name}", goal=goal, stage="VAL")
