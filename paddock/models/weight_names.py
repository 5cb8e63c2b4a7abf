"""How weights are called and shaped elsewhere: one rule per tensor, so that any number can stream.

A family's `huggingface.py` is a list of rules made with the functions below, and says which of the settings over there
it can follow; reading and writing files is `checkpoint/`'s job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from torch import Tensor

from paddock.errors import DataError
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


class HuggingFaceNames(WeightNames, Protocol):
    """What the module `models/<family>/huggingface.py` has to offer."""

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


def same(ours: str, theirs: str, *shape: int, head: str = "") -> TensorRule:
    """A tensor that differs in its name alone."""
    return TensorRule(ours, theirs, shape, shape, _unchanged, _unchanged, head)


def norm(ours: str, theirs: str, width: int, *, head: str = "") -> list[TensorRule]:
    """A layer norm."""
    return [same(f"{ours}.{part}", f"{theirs}.{part}", width, head=head) for part in ("weight", "bias")]


def linear(
    ours: str, theirs: str, inputs: int, outputs: int, *, transposed: bool = False, head: str = ""
) -> list[TensorRule]:
    """A linear layer. Ours are [out, in]; `transposed` ones, as GPT-2's, are stored [in, out]."""
    weight = same(f"{ours}.weight", f"{theirs}.weight", outputs, inputs, head=head)
    if transposed:
        weight = TensorRule(weight.ours, f"{theirs}.weight", (outputs, inputs), (inputs, outputs), Tensor.t, Tensor.t)
    return [weight, same(f"{ours}.bias", f"{theirs}.bias", outputs, head=head)]


def fused_qkv(
    ours: str, theirs: str | Sequence[str], heads: int, hidden: int, *, transposed: bool = False
) -> list[TensorRule]:
    """Queries, keys and values: theirs are one layer or three, each of all heads; ours go head by head."""
    by_head, by_role = partial(heads_together, heads=heads), partial(roles_together, heads=heads)
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


def heads_together(rows: Tensor, heads: int) -> Tensor:
    """Rows that lie query, key, value, each of all heads, as query, key, value of each head."""
    return rows.unflatten(0, (3, heads, -1)).transpose(0, 1).flatten(0, 2)


def roles_together(rows: Tensor, heads: int) -> Tensor:
    """The other way round."""
    return rows.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(0, 2)


def check_settings(
    values: Mapping[str, Any], model_type: str, what: str, fixed: Mapping[str, tuple[object, str]]
) -> None:
    """Refuse a `config.json` of another model, or with a setting that ours cannot follow: `fixed` has the only value
    that is accepted of each, and why."""
    if values.get("model_type") != model_type:
        raise DataError(
            f"config.json: model_type = {values.get('model_type')}",
            why=f"this is not a {what}",
            fix=f"give a folder whose config.json says {model_type}",
        )
    for field, (accepted, reason) in fixed.items():
        if values.get(field, accepted) != accepted:
            raise refuse(field, values[field], reason)
    for field in ("pruned_heads", "quantization_config"):
        if values.get(field):
            raise refuse(field, values[field], "only whole weights in floating point can be read")


def check_activation(values: Mapping[str, Any], field: str, usual: str) -> str:
    """Our name of the non-linearity that a `config.json` names."""
    found = values.get(field, usual)
    if found not in ACTIVATIONS:
        known = ", ".join(sorted(ACTIVATIONS))
        raise refuse(field, found, f"we have no such non-linearity, only {known}")
    return ACTIVATIONS[found]


def check_one_rate(field: str, rate: float, other: str, other_rate: float) -> None:
    """Refuse two dropout rates where our model has one."""
    if rate != other_rate:
        raise DataError(
            f"config.json: {field} = {rate}, {other} = {other_rate}",
            why="we have one dropout for both, and would train otherwise than the file says",
            fix="write the rate you want under both in config.json (they matter in training only)",
        )


def refuse(field: str, value: object, why: str) -> DataError:
    """The error of a setting that we cannot follow."""
    fix = "this model cannot be represented here; use one without this setting"
    return DataError(f"config.json: {field} = {value}", why=why, fix=fix)


def numbered_labels(classes: int) -> dict[str, Any]:
    """Classes without names, as a `config.json` has them."""
    return {
        "id2label": {str(number): f"LABEL_{number}" for number in range(classes)},
        "label2id": {f"LABEL_{number}": number for number in range(classes)},
    }


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor
