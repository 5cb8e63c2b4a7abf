"""The recipe of a torch module that a program brings itself, with datasets of its own: where other processes find them,
and what its recipe says where nobody says otherwise.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paddock.config.choice import chosen_values
from paddock.config.load import merge
from paddock.config.recipe import Recipe
from paddock.data.own.config import OwnData
from paddock.errors import ConfigError, bad_value
from paddock.models.own.config import OwnConfig
from paddock.plugins import PROGRAM, Loan, allow
from paddock.tasks.rules import check_own_data
from paddock.training.config import TrainConfig

Values = dict[str, Any]
PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""package.module:name"""
TASK = "own_loss"
FAMILY = "own"
OF_OTHERS = ("model", "data", "tokenizer", "evaluate")
"""Sections of another model's recipe that say nothing of how to train."""
BATCH = 8
"""Samples in a step, where nobody says how many."""


def is_own_module(model: object) -> bool:
    """Whether `model` is no name of a recipe but a module, what makes one, or its place."""
    return callable(model) or (isinstance(model, str) and PLACE.fullmatch(model) is not None)


def own_values(
    model: Any,
    datasets: Mapping[str, Any],
    recipe: str | Path | None,
    args: str | Path | Mapping[str, Any] | None,
    changes: Mapping[str, Any],
    loan: Loan,
) -> tuple[str, Values]:
    """The recipe's values, and a name for the run. `datasets` are what was given, by the field of the data section;
    `changes` is what else the recipe is told; what this process alone has is named for as long as `loan` lasts."""
    values: Values = {}
    if recipe is not None or args is not None:
        _, values = chosen_values(None, recipe, args)
        if values.get("model", {}).get("family", FAMILY) != FAMILY:  # a recipe of another model: how it trains
            values = {name: section for name, section in values.items() if name not in OF_OTHERS}
    place = place_of(model, loan)
    there = {field: given for field, given in datasets.items() if given is not None}
    data = {"source": "own"} | {field: place_of(_dataset(field, given), loan) for field, given in there.items()}
    values = merge(values, {"task": TASK, "model": {"family": FAMILY, "module": place}, "data": data})
    whole = merge(values, dict(changes))
    seed = whole.get("train", {}).get("seed", TrainConfig.model_fields["seed"].default)
    values = merge(values, {"model": {"seed": seed, "parameters": _num_parameters(place, seed)}})
    return _name_of(model), merge(values, _defaults(whole))


def place_of(thing: Any, loan: Loan) -> str:
    """Where a recipe finds what was given: its own place, if every process finds it there; else one that is lent."""
    if isinstance(thing, str):
        allow(thing)
        return thing
    module, own = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    place = f"{module}:{own}"
    is_known = module != "__main__" and own is not None and PLACE.fullmatch(place)
    if is_known and getattr(sys.modules.get(str(module)), str(own), None) is thing:
        allow(place)
        return place
    return loan.lend(thing, _name_of(thing))


def check_own_recipe(recipe: Recipe, processes: int) -> None:
    """Raise ConfigError for a layout that cuts a module, for objects that other processes would not have, and where
    there are no samples."""
    check_own_data(recipe)
    for field in ("tensor", "pipeline"):
        if (size := getattr(recipe.parallel, field)) > 1:
            raise bad_value(
                f"parallel.{field}",
                size,
                "a module of your own is one piece: only a family says how its layers are cut, and dealt out to stages",
                'spread its samples instead, with parallel="dp2"; or make it a family, as '
                "docs/guides/contributing-a-model.md shows",
            )
    for argument, place in _lent(recipe).items():
        if processes > 1:
            raise ConfigError(
                f"{argument} is {place.removeprefix(PROGRAM)}, an object of this process",
                why=f"a run of {processes} processes makes it in each of them, and a module with the same weights",
                fix=f'put a function that makes it in a file of its own, and give {argument}="file:function"; '
                "or use one process",
            )


def _lent(recipe: Recipe) -> dict[str, str]:
    """The places of this process alone, by the arguments that they were given as."""
    model, data = recipe.model, recipe.data
    assert isinstance(model, OwnConfig) and isinstance(data, OwnData)
    named = {"model": model.module, "train_dataset": data.train, "eval_dataset": data.validation}
    return {argument: place for argument, place in named.items() if place is not None and place.startswith(PROGRAM)}


def _dataset(field: str, given: Any) -> Any:
    """What was given, or the samples of a stream; an error for what has none."""
    if isinstance(given, Path) or (isinstance(given, str) and PLACE.fullmatch(given) is None):
        raise ConfigError(
            f"data.{field} is {given}",
            why="a module of your own takes what your dataset gives, and nothing here knows what is in that file",
            fix='give a list of samples, a dataset, or the place of a function that makes one: "file:function"',
        )
    if not isinstance(given, str) and not callable(given) and not hasattr(given, "__getitem__"):
        given = list(given) if hasattr(given, "__iter__") else given
    from paddock.data.own.samples import check_dataset

    if not isinstance(given, str) and not (callable(given) and not hasattr(given, "__getitem__")):
        check_dataset(f"{'train' if field == 'train' else 'eval'}_dataset", given)
    return given


def _num_parameters(place: str, seed: int) -> int:
    from paddock.models.own.model import own_module

    return sum(parameter.numel() for parameter in own_module(place, seed).parameters())


def _defaults(whole: Values) -> Values:
    """One pass over the data, and a batch that no layout changes."""
    train, batch, evaluate = (whole.get(name, {}) for name in ("train", "batch", "evaluate"))
    values: Values = {}
    if not any(train.get(limit) for limit in ("steps", "samples", "epochs")):
        values["train"] = {"epochs": 1}
    if batch.get("micro") is None:
        values["batch"] = {"micro": None, "global": batch.get("global") or BATCH}
    if "every" not in evaluate:
        values["evaluate"] = {"every": "epoch" if whole["data"].get("validation") else None}
    return values


def _name_of(thing: Any) -> str:
    """What a thing is called, for people."""
    if isinstance(thing, str):
        return thing.rpartition(":")[2]
    made: Callable[..., Any] | type = thing if hasattr(thing, "__name__") else type(thing)
    return str(made.__name__).strip("<>")
