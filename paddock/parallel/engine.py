"""A model laid out over the processes of a job: what training and evaluation ask of it, whatever the layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from paddock.parallel.config import ShardMode
from paddock.parallel.gradient_norm import gradient_norms, scale_gradients, squared_norm
from paddock.parallel.mesh import Mesh
from paddock.parallel.pipeline.shared_parameters import SharedParameters
from paddock.parallel.pipeline.stage import Batch, Stage
from paddock.parallel.placement import place_gradients
from paddock.parallel.sharding import send_gradients

if TYPE_CHECKING:
    from paddock.parallel.pipeline.execution import Pipeline


class Engine:
    """This process's stages (one, without a pipeline) and how a step runs through all of them.

    Sums that it returns are this process's contribution: adding them up over all processes gives the whole, so that
    processes which hold the same data return zero but for one of them. They stay on the device: nothing here waits
    for it.
    """

    def __init__(
        self,
        stages: dict[int, Stage],
        mesh: Mesh,
        shard: ShardMode = "none",
        pipeline: Pipeline | None = None,
        shared: SharedParameters | None = None,
    ) -> None:
        self.stages, self.mesh, self.shared = stages, mesh, shared
        self._shard, self._pipeline = shard, pipeline
        everything = [parameter for stage in stages.values() for parameter in stage.parameters()]
        self.trained = [parameter for parameter in everything if parameter.requires_grad]
        self._device = self.trained[0].device
        extra = {id(parameter) for parameter in (() if shared is None else shared.counted_elsewhere)}
        self._counted = [parameter for parameter in self.trained if id(parameter) not in extra]

    @property
    def batches_at_once(self) -> int:
        """How many micro-batches to give to `outputs` so that no stage waits long for work."""
        return 1 if self._pipeline is None else 4 * self.mesh.layout.pipeline

    @property
    def models(self) -> list[nn.Module]:
        """The pieces of the model that are here; each names its parameters as the whole model does."""
        return [stage.model for stage in self.stages.values()]

    @property
    def has_whole_model(self) -> bool:
        """Whether this process holds all of the model, so that it can be used by itself."""
        layout = self.mesh.layout
        return layout.tensor == layout.pipeline == 1 and self._shard != "parameters"

    @property
    def leads_replica(self) -> bool:
        """Whether this is the process that counts the samples of its data replica."""
        return self.mesh.tensor_rank == 0 and self.mesh.pipeline_rank == 0

    def forward_backward(self, batches: Iterable[Batch], factor: float) -> Tensor:
        """Gradients of `factor` × the loss summed over all micro-batches, ready for the optimizer; returns the sum."""
        if self._pipeline is not None:
            total = self._pipeline.forward_backward(_joined(list(batches)), factor)
        else:
            total = self._accumulate(list(batches), factor)
        place_gradients(self.trained)
        if self.shared is not None:
            self.shared.sum_gradients()
        return total if self.mesh.tensor_rank == 0 else torch.zeros_like(total)

    def outputs(self, batches: Sequence[Batch]) -> list[Tensor]:
        """What the model puts out for each micro-batch, without gradients: the loss of one that has labels. It is
        there on one process of a data replica, and the others get nothing."""
        with torch.no_grad():
            if self._pipeline is not None:
                found = self._pipeline.forward(batches)
            else:
                (stage,) = self.stages.values()
                found = [stage(batch=batch) for batch in batches]
        return found if self.mesh.tensor_rank == 0 else []

    def take_busy_seconds(self) -> float | None:
        """What this process computed in training since the last call; None without a pipeline, where nobody waits
        for a stage."""
        return None if self._pipeline is None else self._pipeline.take_busy_seconds()

    def squared_norm(self) -> Tensor:
        """This process's contribution to the square of the gradient norm over the whole model."""
        return squared_norm(self._counted, self.mesh, self._device)

    def gradient_norms(self, names: Sequence[str]) -> list[float]:
        """The norm of each parameter's gradient over the whole model: for finding what went another way."""
        counted = {id(parameter) for parameter in self._counted}
        named = [pair for model in self.models for pair in model.named_parameters()]
        here = {name: parameter for name, parameter in named if id(parameter) in counted}
        return gradient_norms(here, names, self.mesh, self._device)

    def scale_gradients(self, factor: float) -> None:
        """Multiply all gradients."""
        scale_gradients(self.trained, factor)

    def train(self, training: bool = True) -> None:
        """Switch dropout and the like."""
        for stage in self.stages.values():
            stage.train(training)

    def _accumulate(self, batches: Sequence[Batch], factor: float) -> Tensor:
        """Micro-batch after micro-batch; gradients are summed over the replicas with the last."""
        (stage,) = self.stages.values()
        losses = []
        for number, batch in enumerate(batches):
            send_gradients(stage, number == len(batches) - 1, self._shard)
            loss = stage(batch=batch)
            (loss * factor).backward()
            losses.append(loss.detach())
        return torch.stack(losses).sum()


def _joined(batches: Sequence[Batch]) -> dict[str, Tensor]:
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
