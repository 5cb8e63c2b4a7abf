"""Recipes of what `paddock evaluate` is given instead of one: weights, and a text to measure them on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from paddock.config.load import load_recipe
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.errors import DataError, UserError
from paddock.files import user_path
from paddock.models.config import ModelConfig
from paddock.objects.address import is_address
from paddock.parallel.config import ParallelConfig


def recipe_of_weights(source: str) -> Recipe | None:
    """The recipe with which to evaluate a run directory, a checkpoint or a Hugging Face folder; None where it is none
    of these. Weights have no layout: whatever the run was trained in, an evaluation has the one that its flags say."""
    path = _path(source)
    if os.path.isfile(path / "config.yaml"):
        recipe = load_recipe(path / "config.yaml")
    elif os.path.isfile(path / "checkpoint.json"):
        recipe = _of_checkpoint(path)
    elif os.path.isfile(path / "config.json"):
        recipe = _of_folder(path)
    else:
        return None
    weights = recipe.checkpoint.model_copy(update={"load": source})
    return with_weights_here(recipe.model_copy(update={"checkpoint": weights, "parallel": ParallelConfig()}))


def with_weights_here(recipe: Recipe) -> Recipe:
    """The recipe with the path of a copy, where its weights are in a store: all processes then take the same ones."""
    source = recipe.checkpoint.load
    if source is None or not is_address(source):
        return recipe
    weights = recipe.checkpoint.model_copy(update={"load": str(_path(source))})
    return recipe.model_copy(update={"checkpoint": weights})


def for_measure(recipe: Recipe, task: str, path: str) -> Recipe:
    """The recipe with a task that language models are measured by, over a file, in the place of its own. The model
    reads as much at once as it can."""
    data: dict[str, Any] = {"path": path, "cache": recipe.data.cache, **_as_long_as(recipe.model)}
    if task == "lambada" and path.endswith(".txt"):
        data["source"] = "lines"
    return recipe_from_dict({**recipe.to_dict(), "task": task, "data": data})


def _path(source: str) -> Path:
    if not is_address(source):
        return user_path(source)
    from paddock.checkpoint.stored_run import source_path  # which needs torch, and a help page must not

    return source_path(source)


def _of_checkpoint(path: Path) -> Recipe:
    from paddock.checkpoint.storage import describe_checkpoint

    saved = describe_checkpoint(path).need_recipe(path)
    try:
        return recipe_from_dict(saved.values())
    except UserError as error:
        raise DataError(f"{path}, in its recipe: {error.what}", why=error.why, fix=error.fix) from None


def _of_folder(path: Path) -> Recipe:
    """Of somebody else's weights: the model is known, and its task; data is not."""
    from paddock.checkpoint.foreign.huggingface import read_config

    model = read_config(path)
    return recipe_from_dict({"task": model.task(), "model": model.model_dump(mode="json"), "data": _as_long_as(model)})


def _as_long_as(model: ModelConfig) -> dict[str, Any]:
    context = model.longest_sequence()
    return {} if context is None else {"sequence_length": context}
