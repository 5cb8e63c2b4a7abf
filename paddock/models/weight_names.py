"""How weights are called and shaped elsewhere: one rule per tensor, so that any number can stream.

A family's `huggingface.py` is a list of rules made with the functions below; reading and writing files is
`checkpoint/`'s job, and settings are `huggingface_settings.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from paddock.models.config import ModelConfig
from paddock.models.huggingface_settings import Settings


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


class WeightNames(Protocol):
    """What a module of names has to offer: of files that hold weights alone, under public names."""

    TIED_NAMES: Mapping[str, str]
    """Their names of weights that a file may repeat, each with the name of the tensor it must equal."""

    HEADS: Sequence[str]
    """How their names of heads begin: what our model does not have of them is left out."""

    def tensors(self, config: Any) -> list[TensorRule]:
        """Every tensor of the model, in the order of its forward pass."""

    def canonical_name(self, name: str) -> str | None:
        """The name as the rules have it, for any spelling found in files; None for what is not a weight."""


Shapes = Callable[[], Mapping[str, tuple[int, ...]]]


class HuggingFaceNames(WeightNames, Protocol):
    """What the module `models/<family>/huggingface.py` has to offer."""

    SETTINGS: Settings
    """What becomes of each field of `config.json`."""

    def to_huggingface_config(
        self,
        config: Any,
        *,
        dtype: str = "float32",
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
    ) -> dict[str, Any]:
        """The contents of `config.json`."""

    def from_huggingface_config(self, values: Mapping[str, Any], shapes: Shapes = dict) -> ModelConfig:
        """Our config, or a DataError with the reason why we have no such model. `shapes` gives the shapes of the
        folder's tensors by canonical name, for what they show and `config.json` does not say."""


def same(ours: str, theirs: str, *shape: int, head: str = "") -> TensorRule:
    """A tensor that differs in its name alone."""
    return TensorRule(ours, theirs, shape, shape, _unchanged, _unchanged, head)


def norm(ours: str, theirs: str, width: int, *, head: str = "") -> list[TensorRule]:
    """A layer norm."""
    return [same(f"{ours}.{part}", f"{theirs}.{part}", width, head=head) for part in ("weight", "bias")]


def linear(
    ours: str, theirs: str, inputs: int, outputs: int, *, transposed: bool = False, bias: bool = True, head: str = ""
) -> list[TensorRule]:
    """A linear layer. Ours are [out, in]; `transposed` ones, as GPT-2's, are stored [in, out]."""
    weight = same(f"{ours}.weight", f"{theirs}.weight", outputs, inputs, head=head)
    if transposed:
        weight = TensorRule(weight.ours, f"{theirs}.weight", (outputs, inputs), (inputs, outputs), Tensor.t, Tensor.t)
    return [weight, same(f"{ours}.bias", f"{theirs}.bias", outputs, head=head)] if bias else [weight]


def fused_qkv(
    ours: str, theirs: str | Sequence[str], heads: int, hidden: int, *, transposed: bool = False
) -> list[TensorRule]:
    """Queries, keys and values: theirs are one layer or three, each of all heads; ours go head by head."""
    by_head = partial(heads_together, heads=heads, roles=3)
    by_role = partial(roles_together, heads=heads, roles=3)
    names = (theirs,) if isinstance(theirs, str) else tuple(theirs)

    def rule(part: str, shape: tuple[int, ...], turned: bool) -> TensorRule:
        found = tuple(f"{name}.{part}" for name in names)
        return TensorRule(
            f"{ours}.{part}",
            found[0] if len(found) == 1 else found,
            shape,
            shape[::-1] if turned else shape,
            (lambda tensor: by_head(tensor.t())) if turned else by_head,
            (lambda tensor: by_role(tensor).t()) if turned else by_role,
        )

    return [rule("weight", (3 * hidden, hidden), transposed), rule("bias", (3 * hidden,), False)]


def fused(ours: str, theirs: Sequence[str], heads: int, width: int, inputs: int) -> TensorRule:
    """Projections without biases that are layers of their own there, each `width` wide over all heads, and one layer
    here, head by head."""
    roles, shape = len(theirs), (len(theirs) * width, inputs)
    return TensorRule(
        f"{ours}.weight",
        tuple(f"{name}.weight" for name in theirs),
        shape,
        shape,
        partial(heads_together, heads=heads, roles=roles),
        partial(roles_together, heads=heads, roles=roles),
    )


def heads_together(rows: Tensor, heads: int, roles: int) -> Tensor:
    """Rows that lie role by role (query, key, value), each of all heads, as the roles of each head."""
    return rows.unflatten(0, (roles, heads, -1)).transpose(0, 1).flatten(0, 2)


def roles_together(rows: Tensor, heads: int, roles: int) -> Tensor:
    """The other way round."""
    return rows.unflatten(0, (heads, roles, -1)).transpose(0, 1).flatten(0, 2)


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor
