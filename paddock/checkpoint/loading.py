"""A checkpoint of ours into the pieces of a model that one process holds: all of it, to go on with a run or to use what
it trained; or its weights alone, for a new run, perhaps with another head."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paddock.checkpoint.description import saved_model
from paddock.checkpoint.foreign.matching import IncompatibleKeys, check_settings, check_size, check_sizes
from paddock.checkpoint.storage import check_names, describe_checkpoint, read_tensors, saved_tensors
from paddock.checkpoint.tensors import (
    EMA,
    MODEL,
    Saved,
    check_optimizer_state,
    empty_optimizer_state,
    load_optimizer_state,
    named_parameters,
    prefix_of_weights,
    state_of,
    sync_duplicates,
    tensors_of,
)
from paddock.errors import DataError
from paddock.models.config import ModelConfig
from paddock.models.registry import build_model, family_named, parameter_names


def load_models(
    path: Path,
    models: Sequence[nn.Module],
    optimizer: Optimizer | None = None,
    ema: Sequence[tuple[str, Tensor]] = (),
) -> bool:
    """Fill the models, whatever layout wrote the checkpoint: with an optimizer, to go on training, which gets its
    state, too; without one, to use them, and then with the average of the weights, where the run kept one.

    Called by all processes together. Each reads what it holds, straight into place. Returns whether `ema`, the
    averages that training goes on with, were there to be filled.
    """
    config, saved = _config(models), saved_tensors(path)
    compare_heads(path, config, saved)
    if optimizer is not None:
        check_optimizer_state(path, saved, optimizer)
    state = {} if optimizer is None else empty_optimizer_state(saved, models, optimizer)
    prefix = prefix_of_weights(saved) if optimizer is None else MODEL
    ema = ema if prefix_of_weights(saved) == EMA else ()
    wanted = {**tensors_of(models, None, prefix), **state, **dict(ema)}
    read_tensors(path, wanted, _of_others(saved, prefix, parameter_names(config)))
    sync_duplicates([*named_parameters(models), *ema])
    if optimizer is not None:
        load_optimizer_state(state, models, optimizer)
    return bool(ema)


def load_weights_only(path: Path, models: Sequence[nn.Module]) -> list[str]:
    """Fill the models with a checkpoint's weights, to train them anew, perhaps for another task: the head that it
    lacks stays as it is. Returns what to say about it. Called by all processes together."""
    config, saved = _config(models), saved_tensors(path)
    found = compare_heads(path, config, saved, new_heads=True)
    prefix = prefix_of_weights(saved)
    wanted = tensors_of(models, None, prefix)
    for name in found.missing:
        wanted.pop(prefix + name, None)
    read_tensors(path, wanted, _of_others(saved, prefix, [*parameter_names(config), *found.unexpected]))
    sync_duplicates(named_parameters(models))
    return found.remarks()


def check_checkpoint(path: Path, config: ModelConfig, *, new_heads: bool) -> None:
    """An error, if a checkpoint would not fit a model; only names and shapes are looked at. With `new_heads` it is to
    `load_weights_only`, else to go on with."""
    saved = saved_tensors(path)
    found = compare_heads(path, config, saved, new_heads=new_heads)
    with torch.device("meta"):
        whole = build_model(config)
    prefix = prefix_of_weights(saved) if new_heads else MODEL
    lacking = {prefix + name for name in found.missing}
    wanted = {name: tensor for name, tensor in state_of(whole, prefix).items() if name not in lacking}
    others = _of_others(saved, prefix, [*found.missing, *found.unexpected])
    check_names(path, wanted, {name: entry for name, entry in saved.items() if name in wanted or name not in others})


def compare_heads(path: Path, config: ModelConfig, saved: Saved, *, new_heads: bool = False) -> IncompatibleKeys:
    """What the model of `config` takes of a checkpoint, or an error why it cannot. Only with `new_heads` may it lack
    the head, or be told to reset it."""
    theirs = saved_config(path)
    if theirs is None:
        return IncompatibleKeys()
    check_size(path, theirs, (shape for shape, _ in saved.values()))
    check_settings(path, config, theirs)
    check_sizes(path, config, theirs)
    rules, trained = (family_named(each.family).tensor_rules(each) for each in (config, theirs))
    shapes = {rule.theirs: rule.our_shape for rule in trained}
    reset = new_heads and config.resets_head()
    missing = [rule for rule in rules if rule.head and (reset or rule.theirs not in shapes)]
    if missing and not new_heads:
        raise DataError(
            f"{path} has no head for {config.task()}",
            why=f"it was trained for {theirs.task()}; missing: {', '.join(rule.ours for rule in missing)}",
            fix="train one, with --checkpoint.load and this checkpoint",
        )
    kept = [rule for rule in rules if rule not in missing]
    misfits = [rule for rule in kept if rule.head and shapes[rule.theirs] != rule.our_shape]
    if misfits:
        there, here = shapes[misfits[0].theirs], misfits[0].our_shape
        raise DataError(
            f"the head in {path} does not fit the model",
            why=f"{misfits[0].ours} {list(there)}, not {list(here)}",
            fix="its head is for other classes: set --model.reset-head to train a new one, or --model.classes",
        )
    taken = {rule.theirs for rule in kept}
    unexpected = tuple(rule.ours for rule in trained if rule.head and rule.theirs not in taken)
    return IncompatibleKeys(tuple(rule.ours for rule in missing), unexpected)


def needs_new_head(path: Path, config: ModelConfig) -> bool:
    """Whether training can go on from a checkpoint with its weights alone: it had another head, or must get one."""
    theirs = saved_config(path)
    return config.resets_head() or (theirs is not None and theirs.task() != config.task())


def saved_config(path: Path) -> ModelConfig | None:
    """The model whose checkpoint this is, if it says so."""
    recipe = describe_checkpoint(path).recipe
    return None if recipe is None else saved_model(recipe, path)


def _config(models: Sequence[nn.Module]) -> ModelConfig:
    config = models[0].config
    assert isinstance(config, ModelConfig)
    return config


def _of_others(saved: Collection[str], prefix: str, names: Sequence[str]) -> set[str]:
    """What a checkpoint may hold besides what this process reads: other kinds, and weights of other processes."""
    known = set(names)
    return {name for name in saved if not name.startswith(prefix) or name.removeprefix(prefix) in known}
