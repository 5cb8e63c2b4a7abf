"""What the data position of a checkpoint means, so that a run goes on with the next sample or says why it cannot.

A position is a number of samples. Which sample comes next follows from it only under the same seed, over the same
data, cut into samples in the same way: elsewhere the same number would repeat some samples and leave out others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paddock.checkpoint.description import Description, SavedRecipe
from paddock.errors import ConfigError

POSITION = "data_position"
"""The entry of a checkpoint's description: by recipe field, or in words, what sample numbers stand for."""

TRAINING_CONTENT = "training data content"
"""The entry about what the training data says, of which `training data` has the lengths alone."""
HELD_OUT_CONTENT = "held-out data content"
"""The same of the validation data."""
_LATER = {TRAINING_CONTENT, HELD_OUT_CONTENT}
"""Entries that checkpoints of earlier versions do not have."""

_STATE_OF = {"adam": "Adam", "adamw": "Adam", "sgd": "SGD"}
"""Optimizers with the same state can take over from each other."""


def describe_position(seed: int, fingerprint: Mapping[str, int | str]) -> dict[str, int | str]:
    """What a checkpoint says about its position; `fingerprint` is the task's word on its training samples."""
    return {"train.seed": seed, **fingerprint}


def as_then(now: Mapping[str, int | str], saved: Mapping[str, int | str]) -> dict[str, int | str]:
    """What is described `now`, as it was described by the version that `saved` is of: the two can be compared."""
    return {name: value for name, value in now.items() if name in saved or name not in _LATER}


def check_position(path: Path, description: Description, position: Mapping[str, int | str], allowed: bool) -> None:
    """An error, if a run that goes on from the checkpoint at `path` would not find its next sample, unless that is
    `allowed`. Checkpoints from before positions were described have only the seed of their recipe to go by."""
    if not description.step or allowed:
        return
    saved = description.data_position
    now = as_then(position, saved or {})
    if saved is None:
        saved = {} if description.recipe is None else _seed_of(description.recipe)
        now = {name: value for name, value in now.items() if name in saved}
    changed = [name for name in {**saved, **now} if saved.get(name) != now.get(name)]
    if changed:
        there, here = ({name: values.get(name) for name in changed} for values in (saved, position))
        raise ConfigError(
            "; ".join(f"{name} = {value}" for name, value in here.items()),
            why=f"{path} is at sample {description.samples} with {_listed(there)}; which points elsewhere now: "
            "samples would repeat or be left out",
            fix=f"go back to {_listed(there)}, {_weights_only(path)}; or go on all the same, with "
            "--checkpoint.allow-changes",
        )


def _seed_of(recipe: SavedRecipe) -> dict[str, int | str]:
    """What an older recipe says of its seed: not all do, and it may have been edited."""
    train = recipe.values().get("train")
    seed = train.get("seed") if isinstance(train, dict) else None
    return {"train.seed": seed} if isinstance(seed, int) else {}


def check_optimizer(path: Path, description: Description, name: str) -> None:
    """An error, if the state that a checkpoint has of its optimizer is none that the optimizer `name` could use."""
    optimizer = None if description.recipe is None else description.recipe.optimizer
    saved = name if optimizer is None else optimizer.name
    if description.step and _STATE_OF.get(saved, saved) != _STATE_OF.get(name, name):
        raise ConfigError(
            f"optimizer.name = {name}",
            why=f"{path} has the state of {saved}, which {name} cannot go on with",
            fix=f"go back to --optimizer.name {saved}, {_weights_only(path)}",
        )


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _weights_only(path: Path) -> str:
    return f"or begin a new run from its weights: --checkpoint.load {path} --checkpoint.weights-only, another --run-dir"
