"""Checkpoints to Hugging Face folders, and back; models with the vocabulary of a corpus alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from paddock.checkpoint.description import saved_model
from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.foreign.huggingface import (
    is_huggingface_folder,
    read_config,
    read_labels,
    save_file,
    save_folder,
    stored_weights,
)
from paddock.checkpoint.foreign.matching import StoredWeight
from paddock.checkpoint.shards.pieces import Piece
from paddock.checkpoint.storage import StoredTensors, describe_checkpoint, save_pieces, saved_tensors
from paddock.checkpoint.stored_run import source_path
from paddock.checkpoint.tensors import MODEL, prefix_of_weights
from paddock.config.recipe import recipe_from_dict
from paddock.data.preprocess.token_use import used_tokens
from paddock.data.tokenizers.interface import CONFIG_NAME, LARGEST_FILE, read_settings
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer_folder
from paddock.data.tokenizers.sentencepiece import MODEL_NAME, SentencePieceTokenizer
from paddock.data.tokenizers.trimming import check_trimmable, trim_tokenizer
from paddock.documents import read_text
from paddock.errors import ConfigError, DataError, bad_value
from paddock.files import atomic_write
from paddock.inference.trained import find_classes, find_tokenizer, folders_of, write_classes
from paddock.models.config import ModelConfig
from paddock.models.registry import family_named
from paddock.tasks.registry import data_config_class
from paddock.telemetry.format import bytes_, count
from paddock.versions import versions

FILES = (".safetensors", ".pth", ".pt", ".bin", ".tar")
"""How the name of a file of weights ends; other destinations are folders."""


@dataclass(frozen=True)
class Source:
    """A model in either form, whose weights are read when they are asked for, by our names."""

    path: Path
    config: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer | None
    labels: tuple[str, ...]
    folders: tuple[Path, ...]
    """Where files that go with it may lie."""


def convert(
    source: str,
    destination: Path,
    to: Literal["huggingface", "paddock"],
    dtype: str,
    trim: TrimVocabulary | None = None,
    on_weight: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Write `source` in the other form at `destination`, or with a smaller vocabulary in any; returns what to say.
    `on_weight` hears how many weights have been read, and how many there are."""
    path = source_path(source)
    if destination.exists():
        raise ConfigError(f"{destination} is already there", fix="choose another destination, or remove it")
    if dtype != "float32" and to == "paddock":
        raise ConfigError(f"--dtype {dtype}", why="checkpoints of Paddock hold float32 weights", fix="leave it out")
    is_theirs = is_huggingface_folder(path)
    if is_theirs == (to == "huggingface") and (trim is None or not path.exists()):
        raise ConfigError(
            f"{source} is {'already' if path.exists() else 'not'} "
            + ("a Hugging Face folder" if to == "huggingface" else "one: it has no config.json"),
            fix=f"set --to {'paddock' if to == 'huggingface' else 'huggingface'}"
            if path.exists()
            else "check the path",
        )
    opened, said = open_folder(path) if is_theirs else open_checkpoint(path), list[str]()
    if trim is not None:
        opened, said = trim_vocabulary(opened, trim)
    if on_weight is not None:
        opened = replace(opened, weights=CountedWeights(opened.weights, on_weight))
    if to == "huggingface":
        _export(opened, destination, dtype)
    else:
        _import(opened, destination)
    return said


def open_folder(path: Path) -> Source:
    """What a Hugging Face folder holds."""
    config = read_config(path)
    weights = StoredWeights(stored_weights(path, config))
    labels = read_labels(path) if config.task().endswith("classification") else ()
    try:
        tokenizer = load_tokenizer_folder(path)
    except (ConfigError, DataError):
        tokenizer = None  # a tokenizer we cannot use does not stop the weights from being converted
    return Source(path, config, weights, tokenizer, labels, (path,))


def open_checkpoint(path: Path) -> Source:
    """What a checkpoint of ours, or a run's newest, holds."""
    checkpoint = find_checkpoint(path)
    model = saved_model(describe_checkpoint(checkpoint).need_recipe(checkpoint), checkpoint)
    weights = StoredTensors(checkpoint, prefix_of_weights(saved_tensors(checkpoint)))
    tokenizer, labels = find_tokenizer(checkpoint), find_classes(checkpoint)
    return Source(checkpoint, model, weights, tokenizer, labels, tuple(folders_of(checkpoint)))


class StoredWeights(Mapping[str, Tensor]):
    """The weights of a Hugging Face folder, each read when it is asked for."""

    def __init__(self, stored: Mapping[str, StoredWeight]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> Tensor:
        return self._stored[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


class CountedWeights(Mapping[str, Tensor]):
    """Weights, of which it is told how many have been read."""

    def __init__(self, weights: Mapping[str, Tensor], on_weight: Callable[[int, int], None]) -> None:
        self._weights, self._on_weight = weights, on_weight
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self._read.add(name)
        self._on_weight(len(self._read), len(self._weights))
        return self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def _export(source: Source, destination: Path, dtype: str) -> None:
    if destination.suffix in FILES:
        save_file(source.weights, source.config, destination, dtype)
        return
    end = None if source.tokenizer is None else source.tokenizer.end_of_text_id
    save_folder(
        source.weights,
        source.config,
        destination,
        dtype=dtype,
        bos_token_id=end,
        eos_token_id=end,
        labels=source.labels,
        add_files=partial(_write_tokenizer, source),
    )


def _import(source: Source, destination: Path) -> None:
    config = source.config
    pieces = [
        Piece(
            MODEL + rule.ours,
            (0,) * len(rule.our_shape),
            torch.empty(rule.our_shape, device="meta"),
            partial(source.weights.__getitem__, rule.ours),
        )
        for rule in family_named(config.family).tensor_rules(config)
    ]
    recipe = recipe_from_dict({"task": config.task(), "model": config.model_dump(), "data": _data_for(config)})
    description = {"recipe": recipe.to_dict(), "versions": versions()}

    def add_files(folder: Path) -> None:
        write_classes(source.labels, folder)
        _write_tokenizer(source, folder)

    save_pieces(destination, pieces, description, add_files=add_files)


def _write_tokenizer(source: Source, folder: Path) -> None:
    """The tokenizer, and the spiece.model that it was made from, if that lies beside it: some programs read only
    that one."""
    if source.tokenizer is None:
        return
    source.tokenizer.save(folder)
    beside = next((path for place in source.folders if (path := place / MODEL_NAME).is_file()), None)
    if beside is not None and not (folder / MODEL_NAME).exists():
        with atomic_write(folder / MODEL_NAME, "wb") as stream:
            stream.write(read_text(beside, max_bytes=LARGEST_FILE))


@dataclass(frozen=True)
class TrimVocabulary:
    """Which tokens are to stay: those of these corpora."""

    corpora: tuple[str, ...]
    json_keys: tuple[str, ...] = ("text",)
    multiple: int = 1
    """The vocabulary is filled up to a multiple of this."""


def trim_vocabulary(source: Source, trim: TrimVocabulary) -> tuple[Source, list[str]]:
    """The same model with the tokens that corpora use, and those with a meaning of their own, alone; and its sizes
    before and after, in words."""
    config, tensors = source.config, family_named(source.config.family).vocabulary_tensors(source.config)
    if not tensors:
        raise ConfigError(
            f"--trim-vocab: the vocabulary of a {config.family} cannot be trimmed",
            fix="models of T5 and mT5 can",
        )
    if trim.multiple < 1:
        raise bad_value("--vocab-multiple", trim.multiple, "it is a whole number of at least 1")
    tokenizer = _tokenizer_to_trim(source)
    used = used_tokens(tokenizer, trim.corpora, trim.json_keys)
    used[config.start_token()] = True
    trimmed = trim_tokenizer(tokenizer, used)
    rows, padding = trimmed.kept, tokenizer.pad_id
    fill = -len(rows) % trim.multiple
    rows = np.concatenate([rows, np.full(fill, rows[0] if padding is None else padding)])
    start = int(np.flatnonzero(trimmed.kept == config.start_token())[0])
    smaller = type(config)(**{**config.model_dump(), "vocab": len(rows), "decoder_start": start})
    weights = _Rows(source.weights, tensors, torch.from_numpy(rows))
    said = _sizes(config, smaller, tokenizer, trimmed.tokenizer)
    return replace(source, config=smaller, weights=weights, tokenizer=trimmed.tokenizer, folders=()), said


def _tokenizer_to_trim(source: Source) -> Tokenizer:
    """The spiece.model, where there is one: a tokenizer.json can be made from it, and not the other way."""
    folder = next((place for place in source.folders if (place / MODEL_NAME).is_file()), None)
    tokenizer = source.tokenizer
    if folder is not None:
        settings = read_settings(folder / CONFIG_NAME)
        tokenizer = SentencePieceTokenizer(folder / MODEL_NAME, settings.extra_ids, settings.token("eos"))
    if tokenizer is None:
        raise DataError(
            f"{source.path} has no tokenizer",
            why="only that tells which rows of the embedding a text uses",
            fix="put the model's spiece.model or tokenizer.json beside its weights",
        )
    check_trimmable(tokenizer)
    if tokenizer.vocab_size > source.config.vocabulary():
        raise DataError(
            f"the tokenizer in {source.path} does not fit the model",
            why=f"it has {tokenizer.vocab_size} tokens, and the model {source.config.vocabulary()}",
            fix="take the tokenizer that the model came with",
        )
    return tokenizer


class _Rows(Mapping[str, Tensor]):
    """Weights, some of them with a choice of their rows alone."""

    def __init__(self, weights: Mapping[str, Tensor], names: Collection[str], rows: Tensor) -> None:
        self._weights, self._names, self._rows = weights, names, rows

    def __getitem__(self, name: str) -> Tensor:
        weight = self._weights[name]
        return weight.index_select(0, self._rows) if name in self._names else weight

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def _sizes(before: ModelConfig, after: ModelConfig, tokenizer: Tokenizer, trimmed: Tokenizer) -> list[str]:
    sizes = [config.num_parameters() for config in (before, after)]
    told = {
        "tokens": f"{tokenizer.vocab_size:,} → {trimmed.vocab_size:,}",
        "vocabulary": f"{before.vocabulary():,} → {after.vocabulary():,}",
        "parameters": " → ".join(map(count, sizes)),
        "size": " → ".join(bytes_(4 * size) for size in sizes) + " in float32",
    }
    return [f"{name:<11} {value}" for name, value in told.items()]


def _data_for(config: ModelConfig) -> dict[str, int]:
    """A data section that the model can be used with: rows as long as it takes, the parts of a row in proportion."""
    longest = config.longest_sequence()
    if longest is None:
        return {}
    fields = data_config_class(config.task()).model_fields
    parts = {name: fields[name].default for name in ("stride", "question_length") if name in fields}
    return {"sequence_length": longest} | {name: min(usual, max(1, longest // 4)) for name, usual in parts.items()}
