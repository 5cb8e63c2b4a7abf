"""The tensors of a Hugging Face folder against the rules of a model: what fits, what begins anew, what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from paddock.checkpoint.weight_files import StoredTensor, open_weights
from paddock.errors import DataError
from paddock.models.weight_names import HuggingFaceNames, TensorRule

_LISTED = 10


@dataclass(frozen=True)
class StoredWeight:
    """What a folder has of one of our tensors, not read yet."""

    rule: TensorRule
    stored: tuple[StoredTensor, ...]

    def read(self) -> Tensor:
        parts = [tensor.read() for tensor in self.stored]
        return self.rule.to_ours(parts[0] if len(parts) == 1 else torch.cat(parts))


@dataclass(frozen=True)
class Matched:
    """A folder that fits a model."""

    weights: dict[str, StoredWeight]
    """By our names."""
    fresh: tuple[str, ...]
    """Our names of what the folder lacks: the head of a new task."""
    left_out: tuple[str, ...]
    """Their names of what our model lacks: the heads of other tasks."""

    def remarks(self) -> list[str]:
        """What somebody who loads it should know."""
        return remarks(self.fresh, self.left_out)


def remarks(fresh: Sequence[str], left_out: Sequence[str]) -> list[str]:
    """What weights do not give to a model, and what they have that it does not take, in words."""
    told = {"begun from initial values": fresh, "in it and left out": left_out}
    return [f"{what}: {', '.join(names)}" for what, names in told.items() if names]


def match(
    folder: Path, translation: HuggingFaceNames, rules: Sequence[TensorRule], *, new_heads: bool, reset: bool = False
) -> Matched:
    """Each rule with its tensors; an error that lists everything that is missing, unknown or does not fit.

    With `new_heads`, a head that the folder lacks is no error; nor is one that it has, with `reset`, and does not fit.
    """
    stored = _by_canonical_name(folder, translation)
    fresh = [rule for rule in rules if new_heads and rule.head and (reset or _lacks(stored, rules, rule.head))]
    needed = [rule for rule in rules if rule not in fresh]
    names = [name for rule in needed for name in rule.names]
    heads: Sequence[str] = getattr(translation, "HEADS", ())
    foreign = tuple(head for head in heads if not any(name.startswith(head) for name in names))
    left_out = sorted(name for name in stored if name.startswith(foreign)) if foreign else []
    for name in left_out:
        del stored[name]
    tied = {name: stored.pop(name) for name in translation.TIED_NAMES if name in stored}
    problems = names_that_differ(set(names), set(stored)) + _unfit(needed, stored)
    if problems:
        what = f"the weights in {folder} do not fit the model"
        raise DataError(what, why="; ".join(problems), fix=_advice(needed, stored))
    for name, tensor in tied.items():
        _check_tied(name, tensor, translation.TIED_NAMES[name], stored[translation.TIED_NAMES[name]])
    weights = {rule.ours: StoredWeight(rule, tuple(stored[name] for name in rule.names)) for rule in needed}
    return Matched(weights, tuple(rule.ours for rule in fresh), tuple(left_out))


def names_that_differ(needed: set[str], found: set[str]) -> list[str]:
    """What is missing and what is not known, in words."""
    return _listed("missing", sorted(needed - found)) + _listed("unknown", sorted(found - needed))


def _by_canonical_name(folder: Path, translation: HuggingFaceNames) -> dict[str, StoredTensor]:
    stored: dict[str, StoredTensor] = {}
    for found, tensor in open_weights(folder).items():
        name = translation.canonical_name(found)
        if name in stored:
            raise DataError(f"{tensor.file} has {name} twice", why=f"once as {found}, once under its other name")
        if name is not None:
            stored[name] = tensor
    return stored


def _lacks(stored: dict[str, StoredTensor], rules: Sequence[TensorRule], head: str) -> bool:
    """Whether nothing of a head is there. Half a head is an error."""
    return not any(name in stored for rule in rules if rule.head == head for name in rule.names)


def _unfit(rules: Sequence[TensorRule], stored: dict[str, StoredTensor]) -> list[str]:
    """What is there and cannot be used."""
    present = [(name, shape) for rule in rules for name, shape in rule.shapes.items() if name in stored]
    misshapen = [
        f"{name} {list(stored[name].shape)}, not {list(shape)}"
        for name, shape in present
        if stored[name].shape != shape
    ]
    whole = [f"{name} {stored[name].dtype}" for name, _ in present if not stored[name].floating]
    return _listed("of another shape", misshapen) + _listed("not floating point", whole)


def _advice(rules: Sequence[TensorRule], stored: dict[str, StoredTensor]) -> str:
    """A head that is not there, or another one, is a matter of the task; all else is one of the file."""
    bad = [rule for rule in rules if _unfit([rule], stored) or any(name not in stored for name in rule.names)]
    if not bad or not all(rule.head for rule in bad):
        return "the folder is incomplete, or holds another model: check its config.json, or copy it again"
    if all(_lacks(stored, rules, rule.head) for rule in bad):
        return "it has no head for this task: train one, with --checkpoint.load and this folder"
    if all(name in stored for rule in bad for name in rule.names):
        return "its head is for other classes: set --model.reset-head to train a new one, or --model.classes"
    return "its head is not whole: copy it again, or set --model.reset-head to train a new one"


def _check_tied(name: str, tensor: StoredTensor, original_name: str, original: StoredTensor) -> None:
    if tensor.shape != original.shape or not torch.equal(tensor.read(), original.read()):
        raise DataError(
            f"{tensor.file}: {name} differs from {original_name}",
            why="the two are untied; our model has one weight for both",
            fix="use a model with tied embeddings",
        )


def _listed(problem: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return [f"{len(names)} {problem}: {', '.join(names[:_LISTED])}{more}"]
