"""Checkpoints to Hugging Face folders, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from paddock.checkpoint.description import saved_model
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.huggingface import (
    is_huggingface_folder,
    read_config,
    read_labels,
    save_file,
    save_folder,
    stored_weights,
)
from paddock.checkpoint.shards import Piece
from paddock.checkpoint.storage import StoredTensors, describe_checkpoint, save_pieces, saved_tensors
from paddock.checkpoint.tensors import MODEL, prefix_of_weights
from paddock.config.recipe import recipe_from_dict
from paddock.data.tokenizers.load import load_tokenizer_folder
from paddock.errors import ConfigError, DataError
from paddock.files import user_path
from paddock.inference.trained import find_classes, find_tokenizer, write_classes
from paddock.models.config import ModelConfig
from paddock.tasks.registry import data_config_class
from paddock.versions import versions

FILES = (".safetensors", ".pth", ".pt", ".bin", ".tar")
"""How the name of a file of weights ends; other destinations are folders."""


def convert(source: str, destination: Path, to: Literal["huggingface", "paddock"], dtype: str) -> Path:
    """Write `source` in the other form at `destination`; returns what was read."""
    path = user_path(source)
    if destination.exists():
        raise ConfigError(f"{destination} is already there", fix="choose another destination, or remove it")
    if is_huggingface_folder(path) == (to == "huggingface"):
        raise ConfigError(
            f"{source} is {'already' if path.exists() else 'not'} "
            + ("a Hugging Face folder" if to == "huggingface" else "one: it has no config.json"),
            fix=f"set --to {'paddock' if to == 'huggingface' else 'huggingface'}"
            if path.exists()
            else "check the path",
        )
    return _export(path, destination, dtype) if to == "huggingface" else _import(path, destination, dtype)


def _export(path: Path, destination: Path, dtype: str) -> Path:
    checkpoint = find_checkpoint(path)
    model = saved_model(describe_checkpoint(checkpoint).need_recipe(checkpoint), checkpoint)
    weights = StoredTensors(checkpoint, prefix_of_weights(saved_tensors(checkpoint)))
    if destination.suffix in FILES:
        save_file(weights, model, destination, dtype)
        return checkpoint
    tokenizer = find_tokenizer(checkpoint)
    end = None if tokenizer is None else tokenizer.end_of_text_id
    save_folder(
        weights,
        model,
        destination,
        dtype=dtype,
        bos_token_id=end,
        eos_token_id=end,
        labels=find_classes(checkpoint),
        add_files=None if tokenizer is None else tokenizer.save,
    )
    return checkpoint


def _import(path: Path, destination: Path, dtype: str) -> Path:
    import torch

    if dtype != "float32":
        raise ConfigError(f"--dtype {dtype}", why="checkpoints of Paddock hold float32 weights", fix="leave it out")
    config = read_config(path)
    pieces = [
        Piece(MODEL + name, (0,) * len(shape), torch.empty(shape, device="meta"), weight.read)
        for name, weight in stored_weights(path, config).items()
        for shape in [weight.rule.our_shape]
    ]
    recipe = recipe_from_dict({"task": config.task(), "model": config.model_dump(), "data": _data_for(config)})
    description = {"recipe": recipe.to_dict(), "versions": versions()}
    labels = read_labels(path) if config.task().endswith("classification") else ()
    try:
        tokenizer = load_tokenizer_folder(path)
    except (ConfigError, DataError):
        tokenizer = None  # a tokenizer we cannot use does not stop the weights from being converted

    def add_files(folder: Path) -> None:
        write_classes(labels, folder)
        if tokenizer is not None:
            tokenizer.save(folder)

    save_pieces(destination, pieces, description, add_files=add_files)
    return path


def _data_for(config: ModelConfig) -> dict[str, int]:
    """A data section that the model can be used with: rows as long as it takes, the parts of a row in proportion."""
    longest = config.longest_sequence()
    if longest is None:
        return {}
    fields = data_config_class(config.task()).model_fields
    parts = {name: fields[name].default for name in ("stride", "question_length") if name in fields}
    return {"sequence_length": longest} | {name: min(usual, max(1, longest // 4)) for name, usual in parts.items()}
