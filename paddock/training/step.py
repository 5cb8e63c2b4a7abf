"""One optimizer step in any layout: gradients, their norm, clipping, the update, and what to do about bad numbers.

The training loop runs it, and so does the check that layouts agree: what is compared is what trains.

A step is given to the device in two halves. `launch` queues forward and backward passes and reads nothing back, so
that the host can prepare the next step meanwhile; `complete` reads loss and norm, once and together, and updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from paddock.errors import NumericsError
from paddock.parallel.engine import Engine
from paddock.parallel.pipeline.stage import Batch
from paddock.parallel.seeds import seed_step
from paddock.parallel.world import World
from paddock.training.numerics import explain, most_telling
from paddock.training.optimization.optimizer import set_learning_rate
from paddock.training.precision import LossScale
from paddock.training.replay.replay import Replay, corruption_error


@dataclass(frozen=True)
class StepResult:
    """What all processes know after a step."""

    loss: float
    norm: float
    """Of the gradient, before clipping."""
    rate: float


@dataclass(frozen=True)
class _Launched:
    """A step whose gradients are being computed."""

    number: int
    batches: Sequence[Batch]
    terms: float
    loss_sum: Tensor
    replay: Replay | None
    """If it was computed twice."""


class TrainingStep:
    """Takes the model of an engine one optimizer step further, on all processes together."""

    def __init__(
        self,
        engine: Engine,
        optimizer: Optimizer,
        loss_scale: LossScale,
        world: World,
        *,
        learning_rate: Callable[[int], float],
        clip: float | None,
        seed: int,
        replay_every: int | None = None,
        compiled: bool = False,
    ) -> None:
        """`learning_rate` of a step (the first is 0); `clip` is the largest gradient norm. Of `replay_every` steps the
        last is computed twice (`replay/`), which looks into modules unless they are `compiled`."""
        self._engine, self._optimizer, self._loss_scale, self._world = engine, optimizer, loss_scale, world
        self._learning_rate, self._clip, self._seed_of_run = learning_rate, clip, seed
        self._replay_every, self._compiled = replay_every, compiled
        self._launched: _Launched | None = None

    def run(self, step: int, batches: Sequence[Batch], terms: float) -> StepResult:
        """Both halves."""
        self.launch(step, batches, terms)
        return self.complete()

    def launch(self, step: int, batches: Sequence[Batch], terms: float) -> None:
        """Queue the gradients of step `step` over this process's micro-batches, of `terms` loss terms in all."""
        assert self._launched is None, "a step is under way"

        def passes() -> Tensor:
            self._seed(step)
            return self._engine.forward_backward(batches, self._loss_scale.value / terms)

        replay = None
        if self._replay_every is not None and (step + 1) % self._replay_every == 0:
            replay = Replay(self._engine, passes, inside=not self._compiled)
        loss_sum = passes() if replay is None else replay.loss_sum
        self._launched = _Launched(step, batches, terms, loss_sum, replay)

    def complete(self, before_update: Callable[[], None] | None = None) -> StepResult:
        """Read the loss and the norm, and update the weights. `before_update` is called while the gradients stand,
        before they are scaled and used."""
        assert self._launched is not None, "no step is under way"
        launched, self._launched = self._launched, None
        scale = self._loss_scale
        counted = [] if launched.replay is None else [launched.replay.differing]
        sums = [launched.loss_sum, self._engine.squared_norm(), *counted]
        loss_sum, squares, *differing = self._world.read_sums(sums)
        if launched.replay is not None and any(differing):
            raise corruption_error(launched.number + 1, launched.replay, self._world)
        loss, norm = loss_sum / launched.terms, _root(squares) / scale.value
        if before_update is not None:
            before_update()
        rate = self._learning_rate(launched.number)
        if math.isfinite(norm) and math.isfinite(loss):
            clips = self._clip is not None and norm > self._clip
            factor = self._clip / (norm + 1e-6) if clips and self._clip is not None else 1.0
            self._engine.scale_gradients(factor / scale.value)
            set_learning_rate(self._optimizer, rate)
            self._optimizer.step()
            scale.succeeded()
        elif scale.can_skip and math.isfinite(loss):
            scale.overflowed()
        else:
            self._fail(launched, loss, norm)
        self._optimizer.zero_grad(set_to_none=True)
        return StepResult(loss, norm, rate)

    def _seed(self, step: int) -> None:
        mesh = self._engine.mesh
        seed_step(self._seed_of_run, step, mesh.data_rank, mesh.pipeline_rank)

    def _fail(self, launched: _Launched, loss: float, norm: float) -> None:
        """Say where the numbers went wrong; the last checkpoint is from before this step."""

        def run_again() -> None:
            self._seed(launched.number)
            self._engine.outputs(launched.batches)

        with torch.compiler.set_stance("force_eager"):
            told = self._world.all_gather(explain(self._engine.models, run_again))
        raise NumericsError(
            f"step {launched.number + 1}: loss {loss}, gradient norm {norm}",
            why=most_telling(told),
            fix="lower --optimizer.lr, set --optimizer.clip 1.0, lengthen --schedule.warmup, or look at the data; "
            "the run can go on from its last checkpoint with --checkpoint.load auto",
        )


def _root(squares: float) -> float:
    return math.sqrt(squares) if math.isfinite(squares) else squares
