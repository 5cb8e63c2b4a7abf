"""How a family's weights are called and shaped elsewhere: one rule per tensor, so that any number can stream.

A family's `huggingface.py` offers what `Translation` lists; reading and writing files is `checkpoint/`'s job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from paddock.models.config import ModelConfig

ACTIVATIONS = {
    # The tanh approximation under all its names: they differ in the order of rounding only.
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
}
"""Our names of non-linearities, by transformers'."""
THEIR_ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}
"""The name to write, by ours."""


@dataclass(frozen=True)
class TensorRule:
    """One tensor under both names. The functions may return views: copy before changing anything in place."""

    ours: str
    theirs: str | tuple[str, ...]
    """Several names are of equal parts: one above the other, they are one tensor of `their_shape`."""
    our_shape: tuple[int, ...]
    their_shape: tuple[int, ...]
    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor]
    head: str = ""
    """The part of the model, such as a classifier, that a folder may lack as a whole; empty for what it must have."""

    @property
    def names(self) -> tuple[str, ...]:
        """Theirs."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of each of their tensors, by name."""
        rows, *others = self.their_shape or (1,)
        part = (rows // len(self.names), *others) if self.their_shape else ()
        return dict.fromkeys(self.names, part)

    def part_of_theirs(self, value: Tensor, name: str) -> Tensor:
        """What is theirs under one of their names, of our tensor."""
        theirs = self.to_theirs(value)
        return theirs if len(self.names) == 1 else theirs.chunk(len(self.names))[self.names.index(name)]


class Translation(Protocol):
    """What the module `models/<family>/huggingface.py` has to offer."""

    TIED_NAMES: Mapping[str, str]
    """Their names of weights that a file may repeat, each with the name of the tensor it must equal."""

    FIELDS_WITHOUT_SHAPE: Sequence[str]
    """Fields of our config that change what the model computes, though no tensor's shape shows them."""

    HEADS: Sequence[str]
    """How their names of heads begin: what our model does not have of them is left out. A family may have none."""

    def to_huggingface_config(
        self,
        config: Any,
        *,
        dtype: str = "float32",
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
    ) -> dict[str, Any]:
        """The contents of `config.json`."""

    def from_huggingface_config(self, values: Mapping[str, Any]) -> ModelConfig:
        """Our config, or a DataError with the reason why we have no such model."""

    def tensors(self, config: Any) -> list[TensorRule]:
        """Every tensor of the model, in the order of its forward pass."""

    def canonical_name(self, name: str) -> str | None:
        """The name as the rules have it, for any spelling found in files; None for what is not a weight."""


def heads_together(rows: Tensor, heads: int) -> Tensor:
    """Rows that lie query, key, value, each of all heads, as query, key, value of each head."""
    return rows.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)


def roles_together(rows: Tensor, heads: int) -> Tensor:
    """The other way round."""
    return rows.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)
