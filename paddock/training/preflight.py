"""What a run begins from, looked at before anything is made for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.errors import ConfigError, DataError

if TYPE_CHECKING:
    from paddock.checkpoint.description import Description
    from paddock.config.recipe import Recipe
    from paddock.tasks.task import Task


@dataclass(frozen=True)
class Origin:
    """Where a run goes on: at the step of a checkpoint of ours, or at 0 with what it has of other weights."""

    step: int
    checkpoint: Path | None = None
    description: Description | None = None

    def check_samples(self, recipe: Recipe, task: Task) -> None:
        """An error, if the checkpoint's data position means something else under this recipe."""
        from paddock.checkpoint.position import check_position, describe_position

        if self.checkpoint is not None and self.description is not None:
            position = describe_position(recipe.train.seed, task.fingerprint())
            check_position(self.checkpoint, self.description, position, recipe.checkpoint.allow_changes)


def check_origin(recipe: Recipe, run_dir: Path, continues: bool) -> Origin:
    """An error, if the weights that the recipe names are not there or do not fit; only names and shapes are read."""
    from paddock.checkpoint.config import FOLDER
    from paddock.checkpoint.directory import CheckpointDirectory, find_checkpoint
    from paddock.checkpoint.foreign.huggingface import holds_weights, match_folder
    from paddock.checkpoint.foreign.imagenet_example import read_imagenet_example
    from paddock.checkpoint.loading import check_checkpoint, needs_new_head
    from paddock.checkpoint.names import restore_replaced
    from paddock.checkpoint.position import check_optimizer
    from paddock.checkpoint.storage import describe_checkpoint
    from paddock.checkpoint.stored_run import source_path

    settings, model = recipe.checkpoint, recipe.model
    if settings.load is None:
        return Origin(0)
    source = source_path(settings.load)
    if continues:
        restore_replaced(run_dir / FOLDER)  # now, so that all processes then find the same
        path = CheckpointDirectory(run_dir, keep=None, is_main=False).latest()
        if path is None:
            return Origin(0)
        only_weights = False
    elif holds_weights(source):
        match_folder(source, model, new_heads=not settings.resume)
        if settings.resume:
            read_imagenet_example(source, model)
        return Origin(0)
    else:
        path = find_checkpoint(source)
        only_weights = settings.weights_only or needs_new_head(path, model)
    check_checkpoint(path, model, new_heads=only_weights)
    if only_weights:
        return Origin(0)
    description = describe_checkpoint(path)
    check_optimizer(path, description, recipe.optimizer.name)
    return Origin(description.step, path, description)


def check_end(begun: int, limits: Mapping[str, int], source: str, continues: bool, resumes: bool) -> None:
    """An error, if what the run goes on from is past its end, by recipe field; a run that is just at its own end is
    done, which is an error for one who `resumes` it."""
    end = min(limits.values())
    if begun == end and resumes:
        flags = " ".join(f"--{name} MORE" for name, limit in limits.items() if limit == end)
        raise ConfigError(
            f"{source} has finished: it is at step {begun} of {end}",
            fix=f"to train it further: paddock resume {source} {flags}; or: paddock evaluate {source}",
        )
    if begun > end or (begun == end and not continues):
        raise ConfigError(
            f"{source} is at step {begun} already",
            why=f"the run ends at step {end}",
            fix="set --steps to more" + ("" if continues else ", or take the weights alone: --checkpoint.weights-only"),
        )


def check_labels(recipe: Recipe, classes: Sequence[str]) -> None:
    """An error, if the weights that the recipe names, with their head, number the same classes in another order."""
    from paddock.checkpoint.directory import find_checkpoint
    from paddock.checkpoint.foreign.huggingface import is_huggingface_folder, read_labels
    from paddock.checkpoint.stored_run import source_path
    from paddock.inference.trained import find_classes

    if recipe.checkpoint.load in (None, "auto") or recipe.model.resets_head():
        return
    source = source_path(recipe.checkpoint.load)
    if source.is_file():
        return
    known = read_labels(source) if is_huggingface_folder(source) else find_classes(find_checkpoint(source))
    if sorted(known) == sorted(classes) and list(known) != list(classes):
        number = next(number for number, name in enumerate(classes) if name != known[number])
        raise DataError(
            f"{source} numbers its classes otherwise than the data",
            why=f"class {number} is {known[number]} there, and {classes[number]} in the data",
            fix="predict with it, which goes by the names, or set --model.reset-head to train a new head",
        )
