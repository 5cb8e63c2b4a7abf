"""A model is units between a beginning and an end.

`begin` turns a batch into what the first unit takes, each unit takes that one step further, and `finish` makes a loss
or outputs of it. What goes from one to the next is the carry: a few tensors by name ({x} in a single stack). One
forward pass is these in a row, and is written here alone; a pipeline stage runs a range of the same units. Masks and
lengths stay in the batch, which everybody sees.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from paddock.errors import MachineError
from paddock.models.config import ModelConfig
from paddock.models.layers.cache import KeyValueCache
from paddock.models.layers.initialization import Initial

Batch = Mapping[str, Tensor]
Carry = dict[str, Tensor]


def allocate(module: nn.Module, device: torch.device) -> None:
    """Give memory to a module that was laid out without any; what is in it then is by chance. One that was built with
    memory keeps what is in it."""
    tensors = [*module.parameters(), *module.buffers()]
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    has_memory = not any(tensor.is_meta for tensor in tensors)
    try:
        module.to(device=device) if has_memory else module.to_empty(device=device)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        raise MachineError(
            f"there is no memory for the model on {device}",
            why=f"its weights alone take {needed / 1e9:.1f} GB",
            fix="take a smaller model, or divide it among more processes: --parallel.tensor, --parallel.pipeline, or "
            "--parallel.shard parameters",
        ) from error


class Model(nn.Module):
    """What every family's model is: plain PyTorch on one device, in four parts."""

    inputs: ClassVar[tuple[str, ...]]
    """What the model may find in a batch, in the order of its positional arguments. `labels` makes it a loss."""
    writes: ClassVar[str | None] = None
    """Which input the outputs are scores of the next token of, so that the model can go on by itself, with a cache:
    `tokens` continues a prompt; an encoder-decoder model reads `tokens` and writes `decoder_tokens`."""
    derived: ClassVar[tuple[str, ...]] = ()
    """What the carry may have that every stage of a pipeline can make for itself, so that it is not sent: a unit makes
    it where it is missing, and the units behind it in the same stage share it."""
    config: ModelConfig

    @abstractmethod
    def begin(self, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        """What the first unit takes."""

    @abstractmethod
    def units(self) -> list[str]:
        """The names of the units that are here, in the order in which they run: each is a submodule. They are what is
        compiled, recomputed, gathered as one and dealt out to pipeline stages."""

    @abstractmethod
    def run(self, unit: str, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Carry:
        """What a unit makes of the carry."""

    @abstractmethod
    def finish(self, carry: Carry, batch: Batch, cache: KeyValueCache | None = None) -> Tensor:
        """The outputs; or, where the batch has labels, the loss summed over those that count."""

    @abstractmethod
    def initial(self, name: str) -> Initial | None:
        """How a parameter or buffer begins; None where it was built with its values."""

    def forward(self, *values: Tensor | None, cache: KeyValueCache | None = None, **named: Tensor | None) -> Tensor:
        """The loss of a batch that has labels, else the outputs. The batch comes by name (`model(**batch)`), or by
        place in the order of `inputs`. Given a cache, which was told of these tokens (`add`) and then holds them too,
        the outputs are those of each row's last one alone."""
        batch = self._batch(values, named)
        carry = self.begin(batch, cache)
        for unit in self.units():
            carry = self.run(unit, carry, batch, cache)
        return self.finish(carry, batch, cache)

    def unit_modules(self) -> list[nn.Module]:
        """The modules of the units that are here."""
        return [self.get_submodule(unit) for unit in self.units()]

    def _batch(self, values: tuple[Tensor | None, ...], named: Mapping[str, Tensor | None]) -> Batch:
        given = {**dict(zip(self.inputs, values, strict=False)), **named}
        unknown = set(given) - set(self.inputs)
        if unknown or len(values) + len(named) > len(given):
            reads = ", ".join(self.inputs)
            raise TypeError(f"{type(self).__name__} reads {reads}; it was given {', '.join(sorted(unknown))}")
        return {name: tensor for name, tensor in given.items() if tensor is not None}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout, and afterwards every module in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
