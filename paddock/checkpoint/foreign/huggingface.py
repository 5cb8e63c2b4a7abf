"""Other people's weights: Hugging Face folders, read into our models and written so that transformers loads them, and
single files under the names that torchvision's and timm's have.

One tensor is in flight at a time, so a model never lies in memory twice. What a family's weights are called
over there, and how they are shaped, is the knowledge of its own `huggingface.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paddock.checkpoint.foreign.matching import (
    Matched,
    StoredWeight,
    by_canonical_name,
    check_settings,
    match,
    names_that_differ,
)
from paddock.checkpoint.foreign.weight_files import (
    COPY_AGAIN,
    MAX_JSON_BYTES,
    read_json,
    write_json,
    write_safetensors,
    write_shards,
)
from paddock.documents import Document, read_document
from paddock.errors import ConfigError, DataError, bad_value, did_you_mean
from paddock.files import disk_errors, sync_directory, sync_tree, temporary_file, temporary_folder
from paddock.models.config import ModelConfig
from paddock.models.huggingface_settings import shown
from paddock.models.registry import family_named, family_names, family_of_type
from paddock.models.weight_names import TensorRule, WeightNames
from paddock.parallel.placement import local, part_like

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""What weights can be written as."""

GENERATION_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
"""What of a config is in `generation_config.json` too, where transformers looks for it."""

MAX_SHARD_BYTES = 5 * 10**9
"""Where transformers, too, begins another file."""


def is_huggingface_folder(path: str | Path) -> bool:
    """Whether this is a folder with a `config.json`; what is in it, `read_config` tells."""
    return (Path(path) / "config.json").is_file()


def holds_weights(path: str | Path) -> bool:
    """Whether this is somebody else's weights: such a folder, or a file with the names that are public."""
    return is_huggingface_folder(path) or Path(path).is_file()


def read_config(path: str | Path) -> ModelConfig:
    """The config of the model in a folder, or a DataError why it cannot be one of ours."""
    file = Path(path) / "config.json"
    if not file.is_file():
        raise DataError(f"{path} is not a Hugging Face folder", why="it has no config.json")
    values = read_json(file)
    kind = values.get("model_type")
    family = family_of_type(kind)
    if family is None:
        raise DataError(
            f"{file}: model_type = {shown(kind)}",
            why=f"there is no such family here; supported: {', '.join(family_names())}",
            fix=did_you_mean(shown(kind), family_names()),
        )
    names = family.huggingface()

    @cache
    def shapes() -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in by_canonical_name(Path(path), names).items()}

    return names.from_huggingface_config(values, shapes)


class _Labels(Document):
    id2label: dict[str, str | int] | None = None


def read_labels(path: str | Path) -> tuple[str, ...]:
    """The names of the classes that a folder's model tells apart, by their number; none where it has none."""
    file = Path(path) / "config.json"
    names = read_document(file, _Labels, fix=COPY_AGAIN, max_bytes=MAX_JSON_BYTES).id2label or {}
    numbers = [str(number) for number in range(len(names))]
    return tuple(str(names[number]) for number in numbers) if names.keys() == set(numbers) else ()


def load_weights(model: nn.Module, path: str | Path, *, new_heads: bool = False) -> list[str]:
    """Copy a folder's weights into `model`, whose `config` says what they must be; returns what to say about it.

    Nothing is copied unless all of them fit. A model that holds a part of the layers takes that part. With
    `new_heads`, a head that the folder lacks stays as it is: for training, which begins it anew.
    """
    config = model.config
    assert isinstance(config, ModelConfig)
    return copy_weights(match_folder(path, config, new_heads=new_heads), model)


def copy_weights(found: Matched, model: nn.Module) -> list[str]:
    """Copy what a folder has of a model, or of a part of it, into it; returns what to say about it."""
    # Weights, and what a model has measured: all that it needs to compute the same.
    parameters: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    without_rule = set(parameters) - set(found.weights) - set(found.missing)
    assert not without_rule, f"no rule for {without_rule}"
    with torch.no_grad():
        for name, parameter in parameters.items():
            if name in found.weights:
                local(parameter.data).copy_(part_like(found.weights[name].read(), parameter.data))
    return found.remarks()


def stored_weights(path: str | Path, config: ModelConfig) -> dict[str, StoredWeight]:
    """By our names, what a folder that fits `config` holds; nothing is read before it is asked for.

    The tensors may be views into the file: copy them, never change them.
    """
    return match_folder(path, config).weights


def match_folder(path: str | Path, config: ModelConfig, *, new_heads: bool = False) -> Matched:
    """What a folder holds of the model that `config` describes; with `new_heads` it may lack the head."""
    folder = Path(path)
    if folder.is_file():
        names: WeightNames = family_named(config.family).public_files()
    else:
        names = family_named(config.family).huggingface()
        check_settings(folder, config, read_config(folder))
    return match(folder, names, config, new_heads=new_heads, reset=config.resets_head())


def save_folder(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    path: str | Path,
    *,
    dtype: str = "float32",
    max_shard_bytes: int = MAX_SHARD_BYTES,
    bos_token_id: int | None = None,
    eos_token_id: int | None = None,
    labels: Sequence[str] = (),
    add_files: Callable[[Path], None] | None = None,
) -> None:
    """Write a folder that transformers loads. It appears under its name only when it is complete.

    `state` is asked for one tensor at a time. `labels` name the classes that the model tells apart. `add_files` puts
    more files, such as a tokenizer's, into the folder before it gets its name.
    """
    if dtype not in DTYPES:
        raise bad_value("dtype", dtype, "weights cannot be written so", did_you_mean(dtype, list(DTYPES)))
    path = Path(path)
    _refuse_existing(path)
    theirs = family_named(config.family).huggingface()
    rules = theirs.tensors(config)
    by_name = {name: rule for rule in rules for name in rule.names}
    problems = names_that_differ({rule.ours for rule in rules}, set(state))
    if problems:
        raise DataError("the weights are not those of the config", why="; ".join(problems))
    settings = theirs.to_huggingface_config(config, dtype=dtype, bos_token_id=bos_token_id, eos_token_id=eos_token_id)
    settings |= _named(labels, settings)
    with temporary_folder(path) as partial, disk_errors(path):
        write_shards(
            partial,
            {name: shape for rule in rules for name, shape in rule.shapes.items()},
            DTYPES[dtype],
            lambda name: _exported(by_name[name], name, state, DTYPES[dtype]),
            max_shard_bytes,
        )
        write_json(partial / "config.json", settings)
        special = {name: settings.get(name) for name in GENERATION_TOKENS}
        special = {name: token for name, token in special.items() if token is not None}
        if special.keys() - {"pad_token_id"}:
            write_json(partial / "generation_config.json", special)
        if add_files is not None:
            add_files(partial)
        sync_tree(partial)
        _refuse_existing(path)
        os.rename(partial, path)
        sync_directory(path.parent)


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
    rules = {rule.ours: rule for rule in family_named(config.family).public_files().tensors(config)}
    problems = names_that_differ(set(rules), set(state))
    if problems:
        raise DataError("the weights are not those of the config", why="; ".join(problems))
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_file(path) as partial, disk_errors(path):
        shapes = {name: rule.our_shape for name, rule in rules.items()}
        write_safetensors(partial, shapes, DTYPES[dtype], lambda name: state[name].to("cpu", DTYPES[dtype]))
        os.replace(partial, path)
        sync_directory(path.parent)


def _named(labels: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The names of the classes as `config.json` has them, in place of the numbers there."""
    if not labels:
        return {}
    numbered = settings.get("id2label", {})
    if len(numbered) != len(labels):
        raise DataError(
            f"there are names for {len(labels)} classes",
            why=f"the model tells {len(numbered)} apart",
        )
    return {
        "id2label": {str(number): name for number, name in enumerate(labels)},
        "label2id": {name: number for number, name in enumerate(labels)},
    }


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigError(
            f"{path} exists already",
            why="an export never overwrites",
            fix="remove it, or choose another name",
        )


def _exported(rule: TensorRule, name: str, state: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    value = state[rule.ours].detach()
    if value.shape != rule.our_shape:
        raise DataError(
            f"{rule.ours} has the shape {list(value.shape)}",
            why=f"the config asks for {list(rule.our_shape)}",
        )
    exported = rule.part_of_theirs(value.to("cpu", dtype), name)
    if dtype == torch.float16 and not bool(exported.isfinite().all()):
        raise DataError(
            f"{rule.ours} does not fit float16",
            why=f"its largest value is {value.abs().max().item():.3g}, float16 ends at 65504",
            fix="write bfloat16 or float32",
        )
    return exported
