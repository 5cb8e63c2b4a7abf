"""What a run begins from, looked at before anything is made for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock.config.recipe import Recipe
from paddock.errors import DataError


def check_origin(recipe: Recipe, run_dir: Path, continues: bool) -> None:
    """An error, if the weights that the recipe names are not there or do not fit; only names and shapes are read."""
    from paddock.checkpoint.directory import CheckpointDirectory, find_checkpoint
    from paddock.checkpoint.example_file import read_example
    from paddock.checkpoint.huggingface import holds_weights, match_folder
    from paddock.checkpoint.inheritance import gives_weights_only
    from paddock.checkpoint.loading import check_checkpoint

    settings, model = recipe.checkpoint, recipe.model
    if settings.load is None:
        return
    source = Path(settings.load).expanduser()
    if continues:
        newest = CheckpointDirectory(run_dir, keep=None, leads=False).latest()
        if newest is not None:
            check_checkpoint(newest, model, new_heads=False)
    elif holds_weights(source):
        match_folder(source, model, new_heads=not settings.resume)
        if settings.resume:
            read_example(source, model)
    else:
        path = find_checkpoint(source)
        check_checkpoint(path, model, new_heads=settings.weights_only or gives_weights_only(path, model))


def check_labels(recipe: Recipe, classes: Sequence[str]) -> None:
    """An error, if the weights that the recipe names, with their head, number the same classes in another order."""
    from paddock.checkpoint.directory import find_checkpoint
    from paddock.checkpoint.huggingface import is_huggingface_folder, read_labels
    from paddock.jobs.trained import find_classes

    source = Path(recipe.checkpoint.load or "").expanduser()
    if recipe.checkpoint.load in (None, "auto") or source.is_file() or getattr(recipe.model, "reset_head", False):
        return
    known = read_labels(source) if is_huggingface_folder(source) else find_classes(find_checkpoint(source))
    if sorted(known) == sorted(classes) and list(known) != list(classes):
        number = next(number for number, name in enumerate(classes) if name != known[number])
        raise DataError(
            f"{source} numbers its classes otherwise than the data",
            why=f"class {number} is {known[number]} there, and {classes[number]} in the data",
            fix="predict with it, which goes by the names, or set --model.reset-head to train a new head",
        )
