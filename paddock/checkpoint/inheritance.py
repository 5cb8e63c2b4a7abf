"""What a model takes over of a checkpoint of ours: the encoder always, the head where both are for the same task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.checkpoint.matching import remarks
from paddock.checkpoint.storage import describe_checkpoint
from paddock.errors import ConfigError, DataError
from paddock.models.config import ModelConfig
from paddock.models.registry import config_class, huggingface_of
from paddock.models.weight_names import TensorRule


@dataclass(frozen=True)
class Inheritance:
    """By our names: what a checkpoint does not give to a model, and what it has that the model does not take."""

    fresh: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def remarks(self) -> list[str]:
        """What somebody who trains on should know."""
        return remarks(self.fresh, self.left_out)


def inherit(path: Path, config: ModelConfig, *, new_heads: bool = False) -> Inheritance:
    """What the model of `config` takes of a checkpoint, or an error why it cannot; other errors, such as too many
    layers, show when the weights are read. Only with `new_heads` may it lack the head, or be told to reset it."""
    theirs = saved_model(path)
    if theirs is None:
        return Inheritance()
    check_same_numbers(path, config, theirs)
    rules, saved = (huggingface_of(each.family).tensors(each) for each in (config, theirs))
    shapes = {rule.theirs: rule.our_shape for rule in saved}
    reset = new_heads and getattr(config, "reset_head", False)
    fresh = [rule for rule in rules if rule.head and (reset or rule.theirs not in shapes)]
    if fresh and not new_heads:
        raise DataError(
            f"{path} has no head for {config.task()}",
            why=f"it was trained for {theirs.task()}; missing: {_names(fresh)}",
            fix="train one, with --checkpoint.load and this checkpoint",
        )
    kept = [rule for rule in rules if rule not in fresh]
    misfits = [rule for rule in kept if rule.head and shapes[rule.theirs] != rule.our_shape]
    if misfits:
        there, here = shapes[misfits[0].theirs], misfits[0].our_shape
        raise DataError(
            f"the head in {path} does not fit the model",
            why=f"{misfits[0].ours} {list(there)}, not {list(here)}",
            fix="its head is for other classes: set --model.reset-head to train a new one, or --model.classes",
        )
    taken = {rule.theirs for rule in kept}
    left_out = tuple(rule.ours for rule in saved if rule.head and rule.theirs not in taken)
    return Inheritance(tuple(rule.ours for rule in fresh), left_out)


def gives_weights_only(path: Path, config: ModelConfig) -> bool:
    """Whether training can go on from a checkpoint with its weights alone: it had another head, or must get one."""
    theirs = saved_model(path)
    return bool(getattr(config, "reset_head", False)) or (theirs is not None and theirs.task() != config.task())


def saved_model(path: Path) -> ModelConfig | None:
    """The model whose checkpoint this is, if it says so."""
    recipe = describe_checkpoint(path).get("recipe")
    if not isinstance(recipe, dict):
        return None
    values = recipe["model"]
    return config_class(values["family"])(**values)


def check_same_numbers(source: Path, config: ModelConfig, theirs: ModelConfig) -> None:
    """Some settings show in no shape: with another number of heads the weights would fit and mean nothing."""
    if theirs.family != config.family:
        raise DataError(
            f"{source} holds a {theirs.family}",
            why=f"the model is a {config.family}",
            fix=f"set model.family to {theirs.family}, or give other weights",
        )
    for field in huggingface_of(config.family).FIELDS_WITHOUT_SHAPE:
        ours, found = getattr(config, field), getattr(theirs, field)
        if ours != found:
            raise ConfigError(
                f"model.{field} = {ours}",
                why=f"the weights in {source} were trained with {found}",
                fix=f"set model.{field} to {found}",
            )


def _names(rules: list[TensorRule]) -> str:
    return ", ".join(rule.ours for rule in rules)
