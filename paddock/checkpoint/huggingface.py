"""Hugging Face folders: reading one into our models, and writing one that transformers loads.

One tensor is in flight at a time, so a model never lies in memory twice. What a family's weights are called
over there, and how they are shaped, is the knowledge of its own `huggingface.py`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from paddock.checkpoint.safetensors_writer import sync_tree, write_json, write_shards
from paddock.checkpoint.weight_files import StoredTensor, open_weights, read_json
from paddock.errors import ConfigError, DataError, bad_value, did_you_mean
from paddock.files import disk_errors, sync_directory
from paddock.models.config import ModelConfig
from paddock.models.registry import CONFIGS, huggingface_of
from paddock.models.translation import TensorRule, Translation
from paddock.parallel.placement import local, part_like

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""What weights can be written as."""

MAX_SHARD_BYTES = 5 * 10**9
"""Where transformers, too, begins another file."""

_LISTED = 10


def is_huggingface_folder(path: str | Path) -> bool:
    """Whether this is a folder with a `config.json`; what is in it, `read_config` tells."""
    return (Path(path) / "config.json").is_file()


def read_config(path: str | Path) -> ModelConfig:
    """The config of the model in a folder, or a DataError why it cannot be one of ours."""
    file = Path(path) / "config.json"
    if not file.is_file():
        raise DataError(f"{path} is not a Hugging Face folder", why="it has no config.json")
    values = read_json(file)
    family = values.get("model_type")
    if family not in CONFIGS:
        raise DataError(
            f"{file}: model_type = {family}",
            why=f"there is no such family here; supported: {', '.join(sorted(CONFIGS))}",
            fix=did_you_mean(str(family), sorted(CONFIGS)),
        )
    return _translation(str(family)).from_huggingface_config(values)


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Copy a folder's weights into `model`, whose `config` says what they must be.

    Nothing is copied unless all of them fit. A model that holds a part of the layers takes that part.
    """
    config = model.config
    assert isinstance(config, ModelConfig)
    parameters = dict(model.named_parameters())
    copied = set()
    with torch.no_grad():
        for name, value in read_weights(path, config, parameters):
            local(parameters[name].data).copy_(part_like(value, parameters[name].data))
            copied.add(name)
    assert copied == set(parameters), f"no rule for {set(parameters) - copied}"


def read_weights(
    path: str | Path, config: ModelConfig, names: Collection[str] | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Our names and tensors, one at a time (all, or those in `names`), from a folder that fits `config`.

    The tensors may be views into the file: copy them, never change them.
    """
    folder = Path(path)
    translation = _translation(config.family)
    _check_same_model(folder, config, translation)
    for rule, stored in _match(folder, translation, translation.tensors(config)):
        if names is None or rule.ours in names:
            yield rule.ours, rule.to_ours(stored.read())


def save_folder(
    state: Mapping[str, Tensor],
    config: ModelConfig,
    path: str | Path,
    *,
    dtype: str = "float32",
    max_shard_bytes: int = MAX_SHARD_BYTES,
    bos_token_id: int | None = None,
    eos_token_id: int | None = None,
    add_files: Callable[[Path], None] | None = None,
) -> None:
    """Write a folder that transformers loads. It appears under its name only when it is complete.

    `state` is asked for one tensor at a time. `add_files` puts more files, such as a tokenizer's, into the
    folder before it gets its name.
    """
    if dtype not in DTYPES:
        raise bad_value("dtype", dtype, "weights cannot be written so", did_you_mean(dtype, list(DTYPES)))
    path = Path(path)
    _refuse_existing(path)
    translation = _translation(config.family)
    rules = translation.tensors(config)
    by_name = {rule.theirs: rule for rule in rules}
    problems = _names_that_differ({rule.ours for rule in rules}, set(state))
    if problems:
        raise DataError("the weights are not those of the config", why="; ".join(problems))
    settings = translation.to_huggingface_config(
        config, dtype=dtype, bos_token_id=bos_token_id, eos_token_id=eos_token_id
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with disk_errors(path):
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            partial.mkdir(parents=True)
            write_shards(
                partial,
                {rule.theirs: rule.their_shape for rule in rules},
                DTYPES[dtype],
                lambda name: _exported(by_name[name], state, DTYPES[dtype]),
                max_shard_bytes,
            )
            write_json(partial / "config.json", settings)
            special = {"bos_token_id": bos_token_id, "eos_token_id": eos_token_id}
            if special := {name: token for name, token in special.items() if token is not None}:
                write_json(partial / "generation_config.json", special)
            if add_files is not None:
                add_files(partial)
            sync_tree(partial)
            _refuse_existing(path)
            os.rename(partial, path)
            sync_directory(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _translation(family: str) -> Translation:
    module: Translation = huggingface_of(family)
    return module


def _check_same_model(folder: Path, config: ModelConfig, translation: Translation) -> None:
    """Some settings show in no shape: with another number of heads the weights would fit and mean nothing."""
    theirs = read_config(folder)
    if theirs.family != config.family:
        raise DataError(
            f"{folder} holds a {theirs.family}",
            why=f"the model is a {config.family}",
            fix=f"set model.family to {theirs.family}, or give another folder",
        )
    for field in translation.FIELDS_WITHOUT_SHAPE:
        ours, found = getattr(config, field), getattr(theirs, field)
        if ours != found:
            raise ConfigError(
                f"model.{field} = {ours}",
                why=f"the weights in {folder} were trained with {found}",
                fix=f"set model.{field} to {found}",
            )


def _match(folder: Path, translation: Translation, rules: list[TensorRule]) -> list[tuple[TensorRule, StoredTensor]]:
    """Each rule with its tensor; an error that lists everything that is missing, unknown or does not fit."""
    stored: dict[str, StoredTensor] = {}
    for found, tensor in open_weights(folder).items():
        name = translation.canonical_name(found)
        if name in stored:
            raise DataError(f"{tensor.file} has {name} twice", why=f"once as {found}, once under its other name")
        if name is not None:
            stored[name] = tensor
    tied = {name: stored.pop(name) for name in translation.TIED_NAMES if name in stored}
    problems = _names_that_differ({rule.theirs for rule in rules}, set(stored))
    present = [(rule, stored[rule.theirs]) for rule in rules if rule.theirs in stored]
    misshapen = [(rule, tensor) for rule, tensor in present if tensor.shape != rule.their_shape]
    problems += _listed(
        "of another shape",
        [f"{rule.theirs} {list(tensor.shape)}, not {list(rule.their_shape)}" for rule, tensor in misshapen],
    )
    whole = [f"{rule.theirs} {tensor.dtype}" for rule, tensor in present if not tensor.floating]
    problems += _listed("not floating point", whole)
    if problems:
        raise DataError(
            f"the weights in {folder} do not fit the model",
            why="; ".join(problems),
            fix="the folder is incomplete, or holds another model: check its config.json, or copy it again",
        )
    for name, tensor in tied.items():
        _check_tied(name, tensor, translation.TIED_NAMES[name], stored[translation.TIED_NAMES[name]])
    return present


def _check_tied(name: str, tensor: StoredTensor, original_name: str, original: StoredTensor) -> None:
    if tensor.shape != original.shape or not torch.equal(tensor.read(), original.read()):
        raise DataError(
            f"{tensor.file}: {name} differs from {original_name}",
            why="the two are untied; our model has one weight for both",
            fix="use a model with tied embeddings",
        )


def _names_that_differ(needed: set[str], found: set[str]) -> list[str]:
    return _listed("missing", sorted(needed - found)) + _listed("unknown", sorted(found - needed))


def _listed(problem: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return [f"{len(names)} {problem}: {', '.join(names[:_LISTED])}{more}"]


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigError(
            f"{path} exists already",
            why="an export never overwrites",
            fix="remove it, or choose another name",
        )


def _exported(rule: TensorRule, state: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    value = state[rule.ours].detach()
    if value.shape != rule.our_shape:
        raise DataError(
            f"{rule.ours} has the shape {list(value.shape)}",
            why=f"the config asks for {list(rule.our_shape)}",
        )
    exported = rule.to_theirs(value.to("cpu", dtype))
    if dtype == torch.float16 and not bool(exported.isfinite().all()):
        raise DataError(
            f"{rule.ours} does not fit float16",
            why=f"its largest value is {value.abs().max().item():.3g}, float16 ends at 65504",
            fix="write bfloat16 or float32",
        )
    return exported
