"""Opening a trained model: a run directory, one of its checkpoints, or a Hugging Face folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.description import SavedRecipe, saved_model
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.foreign.huggingface import (
    copy_weights,
    holds_weights,
    is_huggingface_folder,
    load_weights,
    match_folder,
    read_config,
    read_labels,
)
from paddock.checkpoint.loading import check_checkpoint, load_models
from paddock.checkpoint.storage import describe_checkpoint
from paddock.checkpoint.stored_run import source_path
from paddock.data.config import DataConfig
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer_folder
from paddock.documents import read_document
from paddock.errors import DataError, UserError
from paddock.files import atomic_write
from paddock.models.config import ModelConfig
from paddock.models.model import Model, allocate
from paddock.models.registry import build_model
from paddock.tasks.registry import data_config_class

CLASSES = "classes.json"
"""The names of the classes that a model tells apart, by their number."""
MAX_CLASSES_BYTES = 1 << 25


@dataclass(frozen=True)
class Trained:
    """A model with its weights, ready to use, and its tokenizer if there is one."""

    model: Model
    tokenizer: Tokenizer | None
    origin: Path
    task: str
    data: DataConfig | None = None
    """The data section of its recipe; None for weights that come without one."""
    classes: tuple[str, ...] = ()
    """The names of what it tells apart, by their number, where they are known."""


def open_trained(
    source: str, device: torch.device, build: Callable[[ModelConfig], Model] = build_model, *, tells: bool = True
) -> Trained:
    """Load the model that `source` names, or the part of it that `build` makes of its config, without memory. With
    `tells`, what there is to remark goes to standard error."""
    path = source_path(source)
    if is_huggingface_folder(path):
        config = read_config(path)
        found = match_folder(path, config)  # before anything of the size that it claims is made
        model = _empty(config, device, build)
        for remark in copy_weights(found, model):
            if tells:
                print(f"note: {path}: {remark}", file=sys.stderr)
        return Trained(model, load_tokenizer_folder(path), path, config.task(), classes=read_labels(path))
    checkpoint = _find(path)
    recipe = describe_checkpoint(checkpoint).need_recipe(checkpoint)
    config, data = saved_model(recipe, checkpoint), _saved_data(recipe, checkpoint)
    check_checkpoint(checkpoint, config, new_heads=False)  # before anything of that size is made
    model = _empty(config, device, build)
    load_models(checkpoint, [model])
    return Trained(model, find_tokenizer(checkpoint), checkpoint, recipe.task, data, find_classes(checkpoint))


def read_trained_config(source: str) -> ModelConfig:
    """The shape of the model that `source` names; no weights are read."""
    path = source_path(source)
    if is_huggingface_folder(path):
        return read_config(path)
    checkpoint = _find(path)
    return saved_model(describe_checkpoint(checkpoint).need_recipe(checkpoint), checkpoint)


def read_trained_tokenizer(source: str) -> Tokenizer:
    """The tokenizer of the model that `source` names; no weights are read."""
    path = source_path(source)
    if is_huggingface_folder(path):
        return _need_tokenizer(load_tokenizer_folder(path), path)
    checkpoint = _find(path)
    return _need_tokenizer(find_tokenizer(checkpoint), checkpoint)


def load_any_weights(models: Sequence[nn.Module], source: str) -> tuple[Path, list[str]]:
    """Fill the pieces of a model from a run, a checkpoint, or a folder or file of weights; returns what was read, and
    what to say about it."""
    path = source_path(source)
    if holds_weights(path):
        remarks = [load_weights(model, path) for model in models]
        return path, remarks[0]
    checkpoint = find_checkpoint(path)
    load_models(checkpoint, models)
    return checkpoint, []


def find_tokenizer(checkpoint: Path) -> Tokenizer | None:
    """A checkpoint's tokenizer."""
    found = (load_tokenizer_folder(folder) for folder in folders_of(checkpoint))
    return next((tokenizer for tokenizer in found if tokenizer is not None), None)


def find_classes(checkpoint: Path) -> tuple[str, ...]:
    """The names of a checkpoint's classes, if it has any."""
    return next((read_classes(folder) for folder in folders_of(checkpoint) if (folder / CLASSES).is_file()), ())


def write_classes(names: Sequence[str], folder: Path) -> None:
    """Keep the names of classes, if there are any."""
    if names:
        with atomic_write(folder / CLASSES) as stream:
            json.dump(list(names), stream, ensure_ascii=False, indent=0)


def read_classes(folder: Path) -> tuple[str, ...]:
    """What `write_classes` wrote."""
    fix = "copy it again from the run, or write the names of the classes as a list"
    return tuple(read_document(folder / CLASSES, list[str], fix=fix, max_bytes=MAX_CLASSES_BYTES))


def folders_of(checkpoint: Path) -> list[Path]:
    """Where the files that go with a checkpoint are: in it, or in the run directory it belongs to."""
    return [checkpoint, *([checkpoint.parent.parent] if checkpoint.parent.name == FOLDER else [])]


def need_tokenizer(trained: Trained) -> Tokenizer:
    """The tokenizer, or an error that says where it was looked for."""
    return _need_tokenizer(trained.tokenizer, trained.origin)


def _need_tokenizer(tokenizer: Tokenizer | None, origin: Path) -> Tokenizer:
    if tokenizer is None:
        raise DataError(
            f"{origin} has no tokenizer",
            why="there is no tokenizer.json (nor vocab.json and merges.txt) in it or in its run directory",
            fix="put one there; a run keeps its own if its recipe has a tokenizer section",
        )
    return tokenizer


def _find(path: Path) -> Path:
    """The checkpoint that a path means."""
    if path.is_file():
        raise DataError(
            f"{path} is a file of weights",
            why="it does not say which model they are of",
            fix=f"evaluate it with a recipe: paddock evaluate RECIPE --checkpoint.load {path}; or train from it",
        )
    return find_checkpoint(path)


def _saved_data(recipe: SavedRecipe, checkpoint: Path) -> DataConfig:
    try:
        return data_config_class(recipe.task)(**recipe.data)
    except UserError as error:
        raise DataError(f"{checkpoint}, in its recipe: {error.what}", why=error.why, fix=error.fix) from None


def _empty(config: ModelConfig, device: torch.device, build: Callable[[ModelConfig], Model]) -> Model:
    with torch.device("meta"):
        model = build(config)
    allocate(model, device)
    return model.eval()
