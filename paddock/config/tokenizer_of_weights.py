"""The tokenizer that lies beside the weights which a recipe loads, or beside the corpus which it reads: neither means
anything with another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from paddock.checkpoint.config import FOLDER
from paddock.config.load import merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.data.blend_path import parse_blend
from paddock.data.config import CorpusConfig, DataConfig, TokenizerConfig, TokensConfig
from paddock.errors import DataError
from paddock.objects.address import is_address
from paddock.objects.fetch import local_path

_FILES = {
    "file": {"path": "tokenizer.json"},
    "gpt2": {"vocab": "vocab.json", "merges": "merges.txt"},
    "sentencepiece": {"model": "spiece.model"},
    "wordpiece": {"vocab": "vocab.txt"},
}
"""By the tokenizer's kind: its fields, and what their files are called in a folder."""


def with_tokenizer_of_weights(recipe: Recipe, source: str | Path | None) -> Recipe:
    """The recipe with the tokenizer of a run, a checkpoint or a folder, where its own is not there or would be learned
    anew; of weights that have none, or without any, with the one that its corpus remembers."""
    if not recipe.model.vocabulary() or not _lacks_tokenizer(recipe):
        return recipe
    found = _of_weights(recipe, source) or _of_corpus(recipe.data)
    if found is None:
        return recipe
    empty: dict[str, Any] = dict.fromkeys(("vocab", "merges", "model", "path", "extra_ids"))
    section = {"lower_case": False, "chinese_whole_words": False, **empty, **found}
    return recipe_from_dict(merge(recipe.to_dict(), {"tokenizer": section}))


def tokenizer_place(tokenizer: TokenizerConfig) -> str:
    """Where a recipe has its tokenizer from: a folder, or the prefix of a corpus."""
    from paddock.data.tokenizers.remembered import SUFFIX

    file = tokenizer.path or tokenizer.vocab or tokenizer.model or ""
    return file.removesuffix(SUFFIX) if tokenizer.kind == "folder" else str(Path(file).parent)


def _lacks_tokenizer(recipe: Recipe) -> bool:
    own = recipe.tokenizer
    if own.kind == "none":
        return getattr(recipe.data, "source", None) != "synthetic"
    if own.kind == "trained":
        # A corpus that is always the same is kept with its tokenizer.
        return not (isinstance(recipe.data, CorpusConfig) and recipe.data.source == "embedded")
    files = (own.vocab, own.merges, own.model, own.path)
    return any(not (is_address(file) or os.path.exists(file)) for file in files if file is not None)


def _of_weights(recipe: Recipe, source: str | Path | None) -> dict[str, Any] | None:
    if source is None:
        return None
    from paddock.checkpoint.stored_run import source_path

    path = source_path(source)
    folders = [path, path.parent.parent] if path.parent.name == FOLDER else [path]
    found = next((section for folder in folders if (section := _section(folder, recipe.tokenizer.kind))), None)
    learns = recipe.tokenizer.kind == "trained" and recipe.data.source == "text"
    if found is None and learns and _holds_weights(path):
        raise DataError(
            f"{source} has no tokenizer",
            why="its weights know tokens by their numbers, and a tokenizer learned from your text has others",
            fix="put the files that the weights came with there (tokenizer.json, or vocab.json and merges.txt), or "
            "name them: --tokenizer.kind gpt2 --tokenizer.vocab FILE --tokenizer.merges FILE",
        )
    return found


def _holds_weights(path: Path) -> bool:
    """Whether there are any, somebody else's or of a run: one that is about to begin has none yet."""
    from paddock.checkpoint.directory import find_checkpoint
    from paddock.checkpoint.foreign.huggingface import holds_weights

    try:
        return holds_weights(path) or bool(find_checkpoint(path))
    except DataError:
        return False


def _of_corpus(data: DataConfig) -> dict[str, Any] | None:
    from paddock.data.tokenizers.remembered import tokenizer_folder

    if not isinstance(data, TokensConfig) or data.source != "indexed" or data.path is None:
        return None
    folders = (tokenizer_folder(local_path(prefix)) for _, prefix in parse_blend(data.path))
    return next(({"kind": "folder", "path": str(folder)} for folder in folders if os.path.isdir(folder)), None)


def _section(folder: Path, preferred: str) -> dict[str, Any] | None:
    """A recipe's tokenizer section for the files in a folder, if there are any. Of several, the first; but where a
    spiece.model is `preferred`, it is the original, from which others were made."""
    for kind in sorted(_FILES, key=lambda kind: (kind, preferred) != ("sentencepiece", "sentencepiece")):
        files = _FILES[kind]
        if all(os.path.isfile(folder / file) for file in files.values()):
            return {"kind": kind, **{field: str(folder / file) for field, file in files.items()}, **_said(kind, folder)}
    return None


def _said(kind: str, folder: Path) -> dict[str, Any]:
    """What a folder says of its tokenizer besides the files; without a word, as transformers takes it."""
    from paddock.data.tokenizers.interface import CONFIG_NAME, read_settings

    if kind == "wordpiece":
        return {"lower_case": read_settings(folder / CONFIG_NAME).is_uncased}
    return {"extra_ids": read_settings(folder / CONFIG_NAME).extra_ids} if kind == "sentencepiece" else {}
