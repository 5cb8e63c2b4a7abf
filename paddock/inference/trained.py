"""Opening a trained model: a run directory, one of its checkpoints, or a Hugging Face folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.huggingface import holds_weights, is_huggingface_folder, load_weights, read_config, read_labels
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import describe_checkpoint
from paddock.data.config import DataConfig
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer_folder
from paddock.errors import DataError
from paddock.files import atomic_write, user_path
from paddock.models.config import ModelConfig
from paddock.models.model import Model
from paddock.models.registry import build_model, config_class
from paddock.tasks.registry import data_config_class

CLASSES = "classes.json"
"""The names of the classes that a model tells apart, by their number."""


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


def open_trained(source: str, device: torch.device) -> Trained:
    """Load the model that `source` names."""
    path = user_path(source)
    if is_huggingface_folder(path):
        config = read_config(path)
        model = _empty(config, device)
        for remark in load_weights(model, path):
            print(f"note: {path}: {remark}", file=sys.stderr)
        return Trained(model, load_tokenizer_folder(path), path, config.task(), classes=read_labels(path))
    if path.is_file():
        raise DataError(
            f"{path} is a file of weights",
            why="it does not say which model they are of",
            fix=f"evaluate it with a recipe: paddock evaluate RECIPE --checkpoint.load {path}; or train from it",
        )
    checkpoint = find_checkpoint(path)
    recipe = describe_checkpoint(checkpoint)["recipe"]
    model = _empty(config_class(recipe["model"]["family"])(**recipe["model"]), device)
    data = data_config_class(recipe["task"])(**recipe["data"])
    load_models(checkpoint, [model])
    classes = find_classes(checkpoint)
    return Trained(model, find_tokenizer(checkpoint), checkpoint, recipe["task"], data, classes)


def load_any_weights(models: Sequence[nn.Module], source: str) -> tuple[Path, list[str]]:
    """Fill the pieces of a model from a run, a checkpoint, or a folder or file of weights; returns what was read, and
    what to say about it."""
    path = user_path(source)
    if holds_weights(path):
        remarks = [load_weights(model, path) for model in models]
        return path, remarks[0]
    checkpoint = find_checkpoint(path)
    load_models(checkpoint, models)
    return checkpoint, []


def find_tokenizer(checkpoint: Path) -> Tokenizer | None:
    """A checkpoint's tokenizer."""
    found = (load_tokenizer_folder(folder) for folder in _folders_of(checkpoint))
    return next((tokenizer for tokenizer in found if tokenizer is not None), None)


def find_classes(checkpoint: Path) -> tuple[str, ...]:
    """The names of a checkpoint's classes, if it has any."""
    return next((read_classes(folder) for folder in _folders_of(checkpoint) if (folder / CLASSES).is_file()), ())


def write_classes(names: Sequence[str], folder: Path) -> None:
    """Keep the names of classes, if there are any."""
    if names:
        with atomic_write(folder / CLASSES) as stream:
            json.dump(list(names), stream, ensure_ascii=False, indent=0)


def read_classes(folder: Path) -> tuple[str, ...]:
    """What `write_classes` wrote."""
    try:
        names = json.loads((folder / CLASSES).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{folder / CLASSES} is damaged", why=str(error)) from None
    if not isinstance(names, list):
        raise DataError(f"{folder / CLASSES} is damaged", why="it holds no list of names")
    return tuple(map(str, names))


def _folders_of(checkpoint: Path) -> list[Path]:
    """Where the files that go with a checkpoint are: in it, or in the run directory it belongs to."""
    return [checkpoint, *([checkpoint.parent.parent] if checkpoint.parent.name == FOLDER else [])]


def need_tokenizer(trained: Trained) -> Tokenizer:
    """The tokenizer, or an error that says where it was looked for."""
    if trained.tokenizer is None:
        raise DataError(
            f"{trained.origin} has no tokenizer",
            why="there is no tokenizer.json (nor vocab.json and merges.txt) in it or in its run directory",
            fix="put one there; a run keeps its own if its recipe has a tokenizer section",
        )
    return trained.tokenizer


def _empty(config: ModelConfig, device: torch.device) -> Model:
    with torch.device("meta"):
        model = build_model(config)
    return model.to_empty(device=device).eval()
