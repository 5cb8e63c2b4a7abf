"""A training run in one process, assembled from a recipe: the task, the model over all processes, the optimizer, and
where it begins. `loop.py` trains it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from paddock.checkpoint.changes import list_changes
from paddock.checkpoint.directory import CheckpointDirectory, find_checkpoint
from paddock.checkpoint.foreign.huggingface import holds_weights, load_weights
from paddock.checkpoint.loading import load_models, load_weights_only, needs_new_head
from paddock.checkpoint.position import POSITION, as_then, check_optimizer, check_position, describe_position
from paddock.checkpoint.shards.blocks import DamagedCheckpoint
from paddock.checkpoint.storage import check_readable, describe_checkpoint, run_together
from paddock.checkpoint.stored_run import source_path
from paddock.checkpoint.tensors import MODEL, tensors_of
from paddock.models.build import build_engine, initialize_engine
from paddock.parallel.engine import Engine
from paddock.parallel.legality import may_compile
from paddock.parallel.mesh import build_mesh
from paddock.parallel.world import World
from paddock.tasks.registry import build_task
from paddock.tasks.task import Prepared, Task
from paddock.training.callbacks import Callback, callbacks_named
from paddock.training.compilation import compile_units
from paddock.training.optimization.ema import ExponentialMovingAverage
from paddock.training.optimization.optimizer import build_optimizer
from paddock.training.optimization.schedule import in_steps, learning_rate, period
from paddock.training.precision import LossScale, autocast_for
from paddock.training.step import TrainingStep
from paddock.versions import versions

if TYPE_CHECKING:
    from paddock.config.recipe import Recipe
    from paddock.config.rules import Arithmetic


@dataclass
class Progress:
    """How far a run is; all of it but the end is in its checkpoints."""

    step: int = 0
    samples: int = 0
    best: dict[str, float] = field(default_factory=dict)
    """The metrics of the best evaluation so far."""
    best_step: int = 0
    best_of: dict[str, int | str] = field(default_factory=dict)
    """What they were measured on, and which of them decides."""
    loss: float = math.nan
    """Of the last step."""
    stopped_by: str | None = None
    """What ended it before its last step: a signal's name, or what a callback said."""
    interrupted: bool = False
    """Whether that was a signal: what the run was to do is not done."""
    skipped: int = 0
    """Training samples that could not be read, and were replaced, since the process began; known at the end."""


class TrainingRun:
    """Everything that a recipe stands for, in this process. Callbacks see it."""

    def __init__(
        self,
        recipe: Recipe,
        arithmetic: Arithmetic,
        prepared: Prepared,
        run_dir: Path,
        world: World,
        *,
        continues: bool = False,
        falls_back: bool = False,
        callbacks: Sequence[Callback] = (),
        stop_requested: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`continues`: whether it goes on in its own directory, if that has a checkpoint; `falls_back`: from the one
        before it, if the newest cannot be read, as nobody is there to decide. `stop_requested` says by
        whom the run is asked to stop, if it is."""
        self.recipe, self.batch, self.layout = recipe, arithmetic.batch, arithmetic.layout
        self.run_dir, self.world = run_dir, world
        self.callbacks = [*callbacks_named(recipe.train.callbacks), *callbacks]
        self._stop_requested = stop_requested
        self._stopped_by: str | None = None
        self.task: Task = build_task(recipe, prepared)
        self.can_be_tried = prepared.tokenizer is not None or not self.task.reads_tokens
        samples_per_epoch = self.task.training_samples().samples_per_epoch
        self.steps_per_epoch = samples_per_epoch / self.batch.total
        self.total_steps = min(step_limits(recipe, arithmetic, samples_per_epoch).values())
        self.evaluate_every = period(recipe.evaluate.every, self.steps_per_epoch)
        self.checkpoint_every = period(recipe.checkpoint.every, self.steps_per_epoch)
        self.forward_flops = cache(recipe.model.forward_flops)
        self.progress = Progress()
        self.loss_scale = LossScale(recipe.precision, world.adapter)
        self.compiled = False
        self.engine = engine_for(recipe, arithmetic, world, self._compile)
        self.optimizer = build_optimizer(self.engine.trained, recipe.optimizer)
        self.learning_rate = rate_for(recipe, self.total_steps, self.steps_per_epoch)
        parts = (self.engine, self.optimizer, self.loss_scale, world)
        self.step = TrainingStep(
            *parts,
            learning_rate=self.learning_rate,
            clip=recipe.optimizer.clip,
            seed=recipe.train.seed,
            replay_every=recipe.train.replay_every,
            compiled=self.compiled,
        )
        self.ema = None
        if recipe.train.ema is not None:
            self.ema = ExponentialMovingAverage(self.engine.models, recipe.train.ema, self.engine.stages.values())
        settings = recipe.checkpoint
        self.checkpoints = CheckpointDirectory(run_dir, settings.keep, world.is_main, settings.asynchronous)
        self.data_position = describe_position(recipe.train.seed, self.task.fingerprint())
        self.changes: list[str] = []
        """What is otherwise than in the run that it goes on with."""
        self.begun_from = self._load(continues, falls_back)
        self.begun_step = self.progress.step

    def stop(self, reason: str) -> None:
        """Make the step under way, or the next one, the last, on all processes."""
        self._stopped_by = self._stopped_by or reason

    @property
    def stop_reason(self) -> str | None:
        """Why this process wants to stop, if it does."""
        return self._stop_requested() or self._stopped_by

    def agree_on_stop(self) -> None:
        """Note in the progress of all processes, together, what one or some of them were stopped by."""
        mine = [self._stop_requested(), self._stopped_by]
        everyone = [json.loads(told) for told in self.world.all_gather(json.dumps(mine))]
        signals, reasons = ([words[kind] for words in everyone if words[kind]] for kind in (0, 1))
        self.progress.interrupted = bool(signals)
        self.progress.stopped_by = [*signals, *reasons][0]

    @cached_property
    def measured_on(self) -> dict[str, int | str]:
        """What evaluations during training measure: numbers are the better or the worse of the same thing only."""
        batches, available = self.recipe.evaluate.batches, len(self.task.validation_samples())
        samples = available if batches is None else min(batches * self.batch.total, available)
        measure = next(iter(self.task.measures))
        return {"task": self.recipe.task, "measure": measure, "samples": samples, **self.task.held_out_fingerprint()}

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint holds."""
        tensors = tensors_of(self.engine.models, self.optimizer)
        return tensors if self.ema is None else tensors | dict(self.ema.named_tensors())

    def names_of_statistics(self) -> set[str]:
        """The names of what forward passes change."""
        return {MODEL + name for model in self.engine.models for name, _ in model.named_buffers()}

    def description(self) -> dict[str, Any]:
        """What a checkpoint says of itself."""
        progress = self.progress
        return {
            "samples": progress.samples,
            "best": progress.best,
            "best_step": progress.best_step,
            "best_of": progress.best_of,
            "loss_scale": self.loss_scale.state(),
            "recipe": self.recipe.to_dict(),
            "versions": versions(),
            POSITION: self.data_position,
        }

    def _load(self, continues: bool, falls_back: bool) -> str:
        """Bring in what the recipe says the run begins from; returns a description of it."""
        settings, engine = self.recipe.checkpoint, self.engine
        if self.ema is not None:
            self.ema.restart()
        seed = f"initial weights, seed {self.recipe.train.seed}"
        if continues:
            return self._go_on(falls_back) or f"{seed} ({self.run_dir} has no checkpoint yet)"
        if settings.load is None:
            return seed
        source = source_path(settings.load)
        if holds_weights(source) and settings.resume:
            return self._resume_example(source)
        if holds_weights(source):
            remarks = [load_weights(model, source, new_heads=True) for model in engine.models]
            told = [f"weights of {source}", *remarks[0]]
        else:
            path = find_checkpoint(source)
            if not (settings.weights_only or needs_new_head(path, self.recipe.model)):
                return self._resume(path)
            told = [f"weights of {path}", *load_weights_only(path, engine.models)]
        if self.ema is not None:
            self.ema.restart()
        return "; ".join(told)

    def _go_on(self, falls_back: bool) -> str | None:
        """Where the newest checkpoint in the run's own directory stands, or the one before those that cannot be read;
        None if there is none at all."""
        while (path := self.checkpoints.latest()) is not None:
            if not falls_back or not self.checkpoints.has_earlier(path):
                return self._resume(path)
            try:
                run_together(partial(check_readable, path))  # alone, a process would leave the others reading
                return self._resume(path)
            except DamagedCheckpoint as error:
                aside = self.checkpoints.set_aside(path)
                if self.world.is_main:
                    why = f" ({error.why})" if error.why else ""
                    print(
                        f"warning: {error.what}{why}: it is now {aside}, and the run goes on from the one before it",
                        file=sys.stderr,
                        flush=True,
                    )
        return None

    def _resume(self, path: Path) -> str:
        """Go on where a checkpoint of ours stands."""
        description = describe_checkpoint(path)
        check_optimizer(path, description, self.recipe.optimizer.name)
        check_position(path, description, self.data_position, self.recipe.checkpoint.allow_changes)
        averages = [] if self.ema is None else self.ema.named_tensors()
        had_average = load_models(path, self.engine.models, self.optimizer, averages)
        if self.ema is not None and not had_average:
            self.ema.restart()
        progress = self.progress
        progress.step, progress.samples = description.step, description.samples
        self.loss_scale.restore(description.loss_scale)
        recipe = {} if description.recipe is None else description.recipe.values()
        before = recipe, description.data_position or {}
        self.changes = list_changes(before, (self.recipe.to_dict(), self.data_position), path.parent.parent)
        told = f"{path}, step {progress.step}"
        best, best_of = dict(description.best), dict(description.best_of)
        compares = bool(best and best_of) and self.recipe.evaluate.every is not None
        if compares and best_of != as_then(self.measured_on, best_of):
            return f"{told}; its best was measured on other data, and is sought anew"
        progress.best, progress.best_step, progress.best_of = best, description.best_step, best_of
        return told

    def _resume_example(self, path: Path) -> str:
        """Go on where a `checkpoint.pth.tar` of the ImageNet example stands."""
        from paddock.training.imagenet_example import resume_imagenet_example

        self.progress, told = resume_imagenet_example(path, self)
        if self.ema is not None:
            self.ema.restart()
        return told

    def _compile(self, units: Sequence[nn.Module]) -> None:
        recipe = self.recipe
        mode = recipe.train.compile if may_compile(recipe.parallel) else "off"
        self.compiled = compile_units(units, mode, self.world.adapter, recipe.model.num_parameters())


def engine_for(recipe: Recipe, arithmetic: Arithmetic, world: World, compile_units: Any = None) -> Engine:
    """The recipe's model over the processes of the job, with its initial weights."""
    precision = recipe.precision
    engine = build_engine(
        recipe.model,
        recipe.parallel,
        build_mesh(arithmetic.layout, world.rank, world.device.type),
        world.device,
        micro=arithmetic.batch.micro,
        shape=recipe.data.sample_shape(),
        micro_batches=arithmetic.batch.accumulation,
        compute=getattr(torch, precision.compute),
        autocast=autocast_for(precision, world.adapter),
        compile_units=compile_units,
    )
    initialize_engine(engine, recipe.train.seed)
    return engine


@contextmanager
def chosen_products(recipe: Recipe, world: World, kept: object = None) -> Iterator[dict[str, Any]]:
    """Multiply matrices as the recipe says, on all processes alike, inside; `kept` is what rank 0 knows of how the run
    began. Gives what was chosen."""
    chosen: dict[str, Any] = {}
    if world.is_main:
        size = recipe.model.num_parameters()
        chosen = world.adapter.choose_products(recipe.device.products, size, kept)
    chosen = json.loads(world.broadcast(json.dumps(chosen)))
    with world.adapter.using_products(chosen):
        yield chosen


def rate_for(recipe: Recipe, total_steps: int, steps_per_epoch: float) -> Callable[[int], float]:
    """The learning rate of every step of the recipe."""
    schedule = in_steps(recipe.schedule, steps_per_epoch)
    return partial(learning_rate, schedule, recipe.optimizer.lr, total_steps=total_steps)


def step_limits(recipe: Recipe, arithmetic: Arithmetic, samples_per_epoch: float) -> dict[str, int]:
    """The step at which each of the recipe's limits, by its field, is reached; the first one ends the run."""
    batch, limits = arithmetic.batch.total, {}
    if recipe.train.steps is not None:
        limits["train.steps"] = recipe.train.steps
    if recipe.train.samples is not None:
        limits["train.samples"] = math.ceil(recipe.train.samples / batch)
    if recipe.train.epochs is not None:
        limits["train.epochs"] = math.ceil(recipe.train.epochs * samples_per_epoch / batch)
    return limits
