"""What joins a model, a dataset, a loss and a metric. The training loop knows tasks, not models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

Batch = dict[str, Tensor]
Sample = dict[str, Any]


class Samples(Protocol):
    """Training samples by their number, without end."""

    @property
    def samples_per_epoch(self) -> float: ...

    def __getitem__(self, index: int) -> Sample: ...


class Task(Protocol):
    """One kind of work that models are trained for."""

    def training_samples(self) -> Samples: ...

    def validation_samples(self) -> Sequence[Sample]: ...

    def collate(self, samples: list[Sample]) -> Batch:
        """Samples as one batch of tensors, on the host."""

    def count(self, batch: Batch) -> int:
        """How many terms the loss sums over in this batch."""

    def loss(self, model: Callable[..., Tensor], batch: Batch) -> Tensor:
        """The loss, summed (not averaged) over those terms."""

    def metrics(self, loss_sum: float, count: float) -> dict[str, float]:
        """What to report of an evaluation; `loss` is among them."""

    @property
    def tokens_per_sample(self) -> int:
        """0 where samples are not made of tokens."""
