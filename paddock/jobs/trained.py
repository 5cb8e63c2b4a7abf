"""Opening a trained model: a run directory, one of its checkpoints, or a Hugging Face folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.huggingface import holds_weights, is_huggingface_folder, load_weights, read_config
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import describe_checkpoint
from paddock.checkpoint.weight_files import read_json
from paddock.config.recipe import recipe_from_dict
from paddock.data.config import DataConfig
from paddock.data.tokenizer import Tokenizer, load_tokenizer_folder
from paddock.errors import DataError
from paddock.jobs.run_directory import CLASSES, read_classes
from paddock.models.config import ModelConfig
from paddock.models.registry import build_model


@dataclass(frozen=True)
class Trained:
    """A model with its weights, ready to use, and its tokenizer if there is one."""

    model: nn.Module
    tokenizer: Tokenizer | None
    origin: Path
    task: str
    data: DataConfig | None = None
    """The data section of its recipe; None for weights that come without one."""
    classes: tuple[str, ...] = ()
    """The names of what it tells apart, by their number, where they are known."""


def open_trained(source: str, device: torch.device) -> Trained:
    """Load the model that `source` names."""
    path = Path(source).expanduser()
    if is_huggingface_folder(path):
        config = read_config(path)
        model = _empty(config, device)
        for remark in load_weights(model, path):
            print(f"note: {path}: {remark}", file=sys.stderr)
        return Trained(model, load_tokenizer_folder(path), path, config.task(), classes=_labels(path))
    if path.is_file():
        raise DataError(
            f"{path} is a file of weights",
            why="it does not say which model they are of",
            fix=f"evaluate it with a recipe: paddock evaluate RECIPE --checkpoint.load {path}; or train from it",
        )
    checkpoint = find_checkpoint(path)
    recipe = recipe_from_dict(describe_checkpoint(checkpoint)["recipe"])
    model = _empty(recipe.model, device)
    load_models(checkpoint, [model])
    classes = _classes(checkpoint)
    return Trained(model, find_tokenizer(checkpoint), checkpoint, recipe.task, recipe.data, classes)


def load_any_weights(models: Sequence[nn.Module], source: str) -> Path:
    """Fill the pieces of a model from a run, a checkpoint, or a folder or file of weights; returns what was read."""
    path = Path(source).expanduser()
    if holds_weights(path):
        for model in models:
            load_weights(model, path)
        return path
    checkpoint = find_checkpoint(path)
    load_models(checkpoint, models)
    return checkpoint


def find_tokenizer(checkpoint: Path) -> Tokenizer | None:
    """A checkpoint's tokenizer: in it, or in the run directory it belongs to."""
    tokenizer = load_tokenizer_folder(checkpoint)
    if tokenizer is None and checkpoint.parent.name == FOLDER:
        tokenizer = load_tokenizer_folder(checkpoint.parent.parent)
    return tokenizer


def _classes(checkpoint: Path) -> tuple[str, ...]:
    """The names of a checkpoint's classes: in it, or in the run directory it belongs to."""
    for folder in (checkpoint, checkpoint.parent.parent):
        if (folder / CLASSES).is_file():
            return read_classes(folder)
    return ()


def _labels(folder: Path) -> tuple[str, ...]:
    """The names of the classes in a Hugging Face configuration."""
    names = read_json(folder / "config.json").get("id2label")
    if not isinstance(names, dict) or not all(str(number).isdecimal() for number in names):
        return ()
    return tuple(str(names[number]) for number in sorted(names, key=int))


def need_tokenizer(trained: Trained) -> Tokenizer:
    """The tokenizer, or an error that says where it was looked for."""
    if trained.tokenizer is None:
        raise DataError(
            f"{trained.origin} has no tokenizer",
            why="there is no tokenizer.json (nor vocab.json and merges.txt) in it or in its run directory",
            fix="put one there; a run keeps its own if its recipe has a tokenizer section",
        )
    return trained.tokenizer


def _empty(config: ModelConfig, device: torch.device) -> nn.Module:
    with torch.device("meta"):
        model = build_model(config)
    return model.to_empty(device=device).eval()
