"""How a family's weights are called and shaped elsewhere: one rule per tensor, so that any number can stream.

A family's `huggingface.py` offers what `Translation` lists; reading and writing files is `checkpoint/`'s job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from paddock.models.config import ModelConfig


@dataclass(frozen=True)
class TensorRule:
    """One tensor under both names. The functions may return views: copy before changing anything in place."""

    ours: str
    theirs: str
    our_shape: tuple[int, ...]
    their_shape: tuple[int, ...]
    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor]


class Translation(Protocol):
    """What the module `models/<family>/huggingface.py` has to offer."""

    TIED_NAMES: Mapping[str, str]
    """Their names of weights that a file may repeat, each with the name of the tensor it must equal."""

    FIELDS_WITHOUT_SHAPE: Sequence[str]
    """Fields of our config that change what the model computes, though no tensor's shape shows them."""

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
