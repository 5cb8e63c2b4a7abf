"""The tokenizer that lies beside the weights which a recipe loads: they mean nothing with another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from paddock.checkpoint.config import FOLDER
from paddock.config.load import merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.data.config import CorpusConfig
from paddock.files import user_path

_FILES = {
    "file": {"path": "tokenizer.json"},
    "gpt2": {"vocab": "vocab.json", "merges": "merges.txt"},
    "sentencepiece": {"model": "spiece.model"},
    "wordpiece": {"vocab": "vocab.txt"},
}
"""By the tokenizer's kind: its fields, and what their files are called in a folder."""


def with_tokenizer_of_weights(recipe: Recipe, source: str | Path | None) -> Recipe:
    """The recipe with the tokenizer of a run, a checkpoint or a folder, where its own is not there or would be learned
    anew."""
    if source is None or not recipe.model.vocabulary() or not _lacks_tokenizer(recipe):
        return recipe
    path = user_path(source)
    folders = [path, path.parent.parent] if path.parent.name == FOLDER else [path]
    found = next((section for folder in folders if (section := _section(folder, recipe.tokenizer.kind))), None)
    if found is None:
        return recipe
    empty: dict[str, Any] = dict.fromkeys(("vocab", "merges", "model", "path", "extra_ids"))
    section = {"lower_case": False, "chinese_whole_words": False, **empty, **found}
    return recipe_from_dict(merge(recipe.to_dict(), {"tokenizer": section}))


def _lacks_tokenizer(recipe: Recipe) -> bool:
    own = recipe.tokenizer
    if own.kind == "none":
        return getattr(recipe.data, "source", None) != "synthetic"
    if own.kind == "trained":
        return not isinstance(recipe.data, CorpusConfig)  # a corpus that is prepared is kept with its tokenizer
    files = (own.vocab, own.merges, own.model, own.path)
    return any(not os.path.isfile(file) for file in files if file is not None)


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
