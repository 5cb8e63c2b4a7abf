"""The task of a recipe: what it reads made ready, and the task over that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.config.recipe import Recipe

if TYPE_CHECKING:
    from paddock.tasks.task import Prepared, Task


def prepare_data(recipe: Recipe) -> Prepared:
    """What the recipe reads, found or built; the second time it is found."""
    from paddock.tasks.registry import task_class

    return task_class(recipe.task).prepare(recipe.data, recipe.tokenizer, recipe.model)


def build_task(recipe: Recipe, prepared: Prepared | None = None) -> Task:
    """The recipe's task, ready to be read."""
    from paddock.tasks.registry import task_class

    prepared = prepared or prepare_data(recipe)
    return task_class(recipe.task).build(recipe.data, prepared, recipe.model, recipe.train.seed)
