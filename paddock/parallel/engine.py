"""A model laid out over the processes of a job: what the training loop asks of it, whatever the layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from paddock.parallel.config import ShardMode
from paddock.parallel.gradient_norm import gradient_norm, gradient_norms, scale_gradients
from paddock.parallel.mesh import Mesh
from paddock.parallel.placement import settle_gradients
from paddock.parallel.sharding import send_gradients
from paddock.parallel.tied import TiedWeight

if TYPE_CHECKING:
    from paddock.parallel.pipeline import Pipeline

Batch = Mapping[str, Tensor]


class Engine:
    """This process's stages (one, without a pipeline) and how a step runs through all of them.

    Sums that it returns are this process's contribution: adding them up over all processes gives the whole, so that
    processes which hold the same data return zero but for one of them.
    """

    def __init__(
        self,
        parts: dict[int, nn.Module],
        mesh: Mesh,
        main_input: str,
        shard: ShardMode = "none",
        pipeline: Pipeline | None = None,
        tied: TiedWeight | None = None,
    ) -> None:
        self.parts, self.mesh, self._shard = parts, mesh, shard
        self._pipeline, self._tied, self._main = pipeline, tied, main_input
        everything = [parameter for part in parts.values() for parameter in part.parameters()]
        self.trained = [parameter for parameter in everything if parameter.requires_grad]
        extra = () if tied is None else tied.counted_elsewhere
        self._counted = [parameter for parameter in self.trained if not any(parameter is other for other in extra)]

    @property
    def batches_at_once(self) -> int:
        """How many micro-batches to give to `forward` so that no stage waits long for work."""
        return 1 if self._pipeline is None else 4 * self.mesh.layout.pipeline

    @property
    def models(self) -> list[nn.Module]:
        """The pieces of the model that are here; each names its parameters as the whole model does."""
        return [part.get_submodule("model") for part in self.parts.values()]

    @property
    def speaks_for_data(self) -> bool:
        """Whether this is the process that counts the samples of its data replica."""
        return self.mesh.tensor_rank == 0 and self.mesh.pipeline_rank == 0

    def forward_backward(
        self, batches: Sequence[Batch], factor: float, autocast: AbstractContextManager[None]
    ) -> float:
        """Gradients of `factor` × the loss summed over all micro-batches, ready for the optimizer; returns the sum."""
        if self._pipeline is not None:
            with autocast:
                total = self._pipeline.forward_backward(*self._joined(batches), factor)
        else:
            total = self._accumulate(batches, factor, autocast)
        settle_gradients(self.trained)
        if self._tied is not None:
            self._tied.add_up()
        return total if self.mesh.tensor_rank == 0 else 0.0

    def forward(self, batches: Sequence[Batch], autocast: AbstractContextManager[None]) -> float:
        """The loss summed over micro-batches, without gradients."""
        return float(sum(map(float, self.outputs(batches, autocast))))

    def outputs(self, batches: Sequence[Batch], autocast: AbstractContextManager[None]) -> list[Tensor]:
        """What the model puts out for each micro-batch, without gradients: the loss of one that has labels. It is
        there on one process of a data replica, and the others get nothing."""
        with torch.no_grad(), autocast:
            if self._pipeline is not None:
                found = self._pipeline.forward([(batch[self._main], self._others(batch)) for batch in batches])
            else:
                (part,) = self.parts.values()
                found = [part(batch[self._main], **self._others(batch)) for batch in batches]
        return found if self.mesh.tensor_rank == 0 else []

    def take_busy_seconds(self) -> float | None:
        """What this process computed in training since the last call; None without a pipeline, where nobody waits
        for a stage, or where the host cannot know."""
        return None if self._pipeline is None else self._pipeline.take_busy_seconds()

    def gradient_norm(self) -> float:
        """The norm over the whole model."""
        return gradient_norm(self._counted, self.mesh)

    def gradient_norms(self, names: Sequence[str]) -> list[float]:
        """The norm of each parameter's gradient over the whole model: for finding what went another way."""
        counted = {id(parameter) for parameter in self._counted}
        named = [pair for model in self.models for pair in model.named_parameters()]
        here = {name: parameter for name, parameter in named if id(parameter) in counted}
        return gradient_norms(here, names, self.mesh)

    def scale_gradients(self, factor: float) -> None:
        """Multiply all gradients."""
        scale_gradients(self.trained, factor)

    def train(self, training: bool = True) -> None:
        """Switch dropout and the like."""
        for part in self.parts.values():
            part.train(training)

    def _accumulate(self, batches: Sequence[Batch], factor: float, autocast: AbstractContextManager[None]) -> float:
        (part,) = self.parts.values()
        total = 0.0
        for index, batch in enumerate(batches):
            send_gradients(part, index == len(batches) - 1, self._shard)
            with autocast:
                loss = part(batch[self._main], **self._others(batch))
            (loss * factor).backward()
            total += float(loss.detach())
        return total

    def _others(self, batch: Batch) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in batch.items() if name != self._main}

    def _joined(self, batches: Sequence[Batch]) -> tuple[Tensor, dict[str, Tensor]]:
        whole = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
        return whole.pop(self._main), whole
