"""The tensors of a Hugging Face folder against the rules of a model: what fits, what begins anew, what is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from paddock.checkpoint.foreign.weight_files import StoredTensor, open_weights
from paddock.errors import ConfigError, DataError
from paddock.models.config import ModelConfig, SampleShape
from paddock.models.registry import family_named
from paddock.models.weight_names import TensorRule, WeightNames

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
class IncompatibleKeys:
    """What saved weights and a model do not have in common, and need not: the heads of different tasks."""

    missing: tuple[str, ...] = ()
    """What the model has and the weights lack."""
    unexpected: tuple[str, ...] = ()
    """What the weights have and the model lacks."""

    def remarks(self) -> list[str]:
        """What somebody who loads them should know."""
        told = {"begun from initial values": self.missing, "in it and left out": self.unexpected}
        return [f"{what}: {', '.join(names)}" for what, names in told.items() if names]


@dataclass(frozen=True)
class Matched(IncompatibleKeys):
    """A folder that fits a model; `missing` are our names, `unexpected` the folder's."""

    weights: dict[str, StoredWeight] = field(default_factory=dict)
    """By our names."""


def match(folder: Path, names: WeightNames, config: ModelConfig, *, new_heads: bool, reset: bool = False) -> Matched:
    """Each rule of a model with its tensors; an error that lists everything that is missing, unknown or does not fit.

    With `new_heads`, a head that the folder lacks is no error; nor is one that it has, with `reset`, and does not fit.
    """
    stored = by_canonical_name(folder, names)
    check_size(folder, config, (tensor.shape for tensor in stored.values()))
    rules = names.tensors(config)
    missing = [rule for rule in rules if new_heads and rule.head and (reset or _lacks(stored, rules, rule.head))]
    needed = [rule for rule in rules if rule not in missing]
    wanted = {name for rule in needed for name in rule.names}
    foreign = tuple(head for head in names.HEADS if not any(name.startswith(head) for name in wanted))
    unexpected = sorted(name for name in stored if name.startswith(foreign)) if foreign else []
    for name in unexpected:
        del stored[name]
    tied = {name: stored.pop(name) for name in names.TIED_NAMES if name in stored and name not in wanted}
    problems = names_that_differ(wanted, set(stored)) + _unfit(needed, stored)
    if problems:
        what = f"the weights in {folder} do not fit the model"
        raise DataError(what, why="; ".join(problems), fix=_advice(needed, stored))
    for name, tensor in tied.items():
        _check_tied(name, tensor, names.TIED_NAMES[name], stored[names.TIED_NAMES[name]])
    weights = {rule.ours: StoredWeight(rule, tuple(stored[name] for name in rule.names)) for rule in needed}
    return Matched(tuple(rule.ours for rule in missing), tuple(unexpected), weights)


def names_that_differ(needed: set[str], found: set[str]) -> list[str]:
    """What is missing and what is not known, in words."""
    return _listed("missing", sorted(needed - found)) + _listed("unknown", sorted(found - needed))


def check_settings(source: Path, config: ModelConfig, theirs: ModelConfig) -> None:
    """Some settings show in no shape: with another number of heads the weights would fit and mean nothing."""
    if theirs.family != config.family:
        raise DataError(
            f"{source} holds a {theirs.family}",
            why=f"the model is a {config.family}",
            fix=f"set model.family to {theirs.family}, or give other weights",
        )
    kinds = config.variant(), theirs.variant()
    if all(kinds) and kinds[0] != kinds[1]:
        raise DataError(
            f"{source} holds a {kinds[1]}",
            why=f"the model is a {kinds[0]}, whose layers are others",
            fix=f"take a recipe of {kinds[1]}, or give weights of {kinds[0]}; `paddock zoo list` shows recipes",
        )
    if config.vocabulary() != theirs.vocabulary():
        raise ConfigError(
            f"model.vocab = {config.vocabulary()}",
            why=f"the weights in {source} know {theirs.vocabulary()} tokens",
            fix=f"set --model.vocab {theirs.vocabulary()}",
        )
    for name in config.fields_without_shape:
        ours, found = getattr(config, name), getattr(theirs, name)
        if ours != found:
            here, there = (f" ({words})" if (words := each.in_words(name)) else "" for each in (config, theirs))
            raise ConfigError(
                f"model.{name} = {ours}{here}",
                why=f"the weights in {source} were trained with {found}{there}",
                fix=f"set model.{name} to {found}",
            )


def check_sizes(source: Path, config: ModelConfig, theirs: ModelConfig) -> None:
    """An error that names the settings, where tensors would differ because of them."""
    needed, found = _body(config), _body(theirs)
    if needed == found:
        return
    fields = [name for name in type(config).model_fields if getattr(config, name) != getattr(theirs, name)]
    fields = [name for name in fields if _body(theirs.model_copy(update={name: getattr(config, name)})) != found]
    if fields:
        values = {name: (getattr(config, name), getattr(theirs, name)) for name in fields}
        raise ConfigError(
            "; ".join(f"model.{name} = {here}" for name, (here, _) in values.items()),
            why="; ".join(f"{name}: {there} in the checkpoint, {here} here" for name, (here, there) in values.items())
            + f" ({source})",
            fix="set " + " ".join(f"--model.{name.replace('_', '-')} {there}" for name, (_, there) in values.items()),
        )


def _body(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's tensors without its head, by their names elsewhere."""
    rules = family_named(config.family).tensor_rules(config)
    return {str(rule.theirs): tuple(rule.our_shape) for rule in rules if not rule.head}


def check_size(source: Path, config: ModelConfig, shapes: Iterable[Sequence[int]]) -> None:
    """An error, if a config describes a model of quite another size than the tensors that are there: before anything
    is built from what it says. Where they are near to each other, names and shapes tell more."""
    found = sum(math.prod(shape) for shape in shapes)
    *body, head = config.units(SampleShape(1, 1))
    needed = sum(unit.parameters for unit in body)
    if needed > 2 * found:
        raise DataError(
            f"{source} does not hold the model that it describes",
            why=f"that has {needed + head.parameters} parameters, and its tensors have {found} numbers",
            fix="the sizes in its config, or its files, are those of another model: copy it again",
        )


def by_canonical_name(folder: Path, names: WeightNames) -> dict[str, StoredTensor]:
    """Every tensor of a folder's files that is a weight, as the rules call it."""
    stored: dict[str, StoredTensor] = {}
    for found, tensor in open_weights(folder).items():
        name = names.canonical_name(found)
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
