"""Data parallelism: every process holds the whole model, and gradients are summed over processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paddock.parallel.world import World


class Replica:
    """A model and its copies in the other processes.

    The loss that goes backward is already divided by the global count, so gradients must be summed. The engine
    averages them; multiplying the loss by the number of processes undoes that (exactly, for powers of two).
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model = model
        self._engine: nn.Module = model
        self._scale = float(world.size)
        if world.size > 1:
            self._engine = DistributedDataParallel(model, gradient_as_bucket_view=True)

    def __call__(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        result: Tensor = self._engine(*args, **kwargs)
        return result

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of `loss` (this process's share of the global loss) to the parameters."""
        (loss * self._scale if self._scale != 1.0 else loss).backward()

    @contextmanager
    def accumulating(self, last: bool) -> Iterator[None]:
        """Gradients of all but the last micro-batch stay here; the last one's backward sends the sum."""
        if last or not isinstance(self._engine, DistributedDataParallel):
            yield
        else:
            with self._engine.no_sync():
                yield
