"""Opening a trained model: a run directory, one of its checkpoints, or a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from paddock.checkpoint.config import FOLDER
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.huggingface import is_huggingface_folder, load_weights, read_config
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import describe_checkpoint
from paddock.config.recipe import recipe_from_dict
from paddock.data.tokenizer import Tokenizer, load_tokenizer_folder
from paddock.errors import DataError
from paddock.models.config import ModelConfig
from paddock.models.registry import build_model


@dataclass(frozen=True)
class Trained:
    """A model with its weights, ready to use, and its tokenizer if there is one."""

    model: nn.Module
    tokenizer: Tokenizer | None
    origin: Path


def open_trained(source: str, device: torch.device) -> Trained:
    """Load the model that `source` names."""
    path = Path(source).expanduser()
    if is_huggingface_folder(path):
        model = _empty(read_config(path), device)
        load_weights(model, path)
        return Trained(model, load_tokenizer_folder(path), path)
    checkpoint = find_checkpoint(path)
    model = _empty(recipe_from_dict(describe_checkpoint(checkpoint)["recipe"]).model, device)
    load_models(checkpoint, [model])
    return Trained(model, find_tokenizer(checkpoint), checkpoint)


def load_any_weights(models: Sequence[nn.Module], source: str) -> Path:
    """Fill the pieces of a model from a run, a checkpoint or a Hugging Face folder; returns what was read."""
    path = Path(source).expanduser()
    if is_huggingface_folder(path):
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
