"""One file of weights under the names that everybody's files have, such as torchvision's and timm's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from paddock.checkpoint.huggingface import DTYPES
from paddock.checkpoint.matching import names_that_differ
from paddock.checkpoint.safetensors_writer import write_safetensors
from paddock.errors import ConfigError, DataError
from paddock.files import disk_errors, sync_directory
from paddock.models.config import ModelConfig
from paddock.models.registry import public_weights_of


def save_file(state: Mapping[str, Tensor], config: ModelConfig, path: Path, dtype: str) -> None:
    """Write a .safetensors file. It appears under its name only when it is complete.

    `state` is asked for one tensor at a time.
    """
    if path.suffix != ".safetensors":
        raise ConfigError(
            f"{path} would be a file of an unknown form",
            why="weights are written as safetensors, which nothing can hide code in",
            fix=f"call it {path.with_suffix('.safetensors').name}, or give a folder's name, without a dot",
        )
    rules = {rule.ours: rule for rule in public_weights_of(config.family).tensors(config)}
    problems = names_that_differ(set(rules), set(state))
    if problems:
        raise DataError("the weights are not those of the config", why="; ".join(problems))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            shapes = {name: rule.our_shape for name, rule in rules.items()}
            write_safetensors(partial, shapes, DTYPES[dtype], lambda name: state[name].to("cpu", DTYPES[dtype]))
            os.replace(partial, path)
            sync_directory(path.parent)
    finally:
        partial.unlink(missing_ok=True)
