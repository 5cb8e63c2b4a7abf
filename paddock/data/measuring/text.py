"""A file of text as tokens, with what its perplexity is divided by: words, bytes and characters."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.data.cache import Arrays, cache_of_file
from paddock.data.lines import MARK
from paddock.data.measuring.config import TextData
from paddock.data.tokenizers.interface import Tokenizer
from paddock.errors import DataError
from paddock.files import read_regular
from paddock.objects.fetch import local_path

LARGEST = 2**30
"""Bytes of a text."""


@dataclass(frozen=True)
class MeasuredText:
    """A text as a corpus of one document, and how long it is as people count."""

    tokens: NDArray[np.int32]
    words: int
    """As lm-eval counts them: one more than there are stretches of white space."""
    bytes: int
    characters: int
    documents: NDArray[np.integer]

    @property
    def sizes(self) -> NDArray[np.integer]:
        return np.array([len(self.tokens)])

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop."""
        return self.tokens[start:stop]


def load_text(data: TextData, tokenizer: Tokenizer) -> MeasuredText:
    """The file's text: its tokens are found in the cache, or made and kept there."""
    path = local_path(data.path or "")
    try:
        raw = read_regular(path, LARGEST)
    except OSError as error:
        raise DataError(f"cannot read {path}", why=error.strerror or "", fix="check --text") from None
    cache = cache_of_file(data, "text", str(path), raw, tokenizer.content())
    arrays = cache.get({"kind": "text 1"}, lambda: _arrays(raw.removeprefix(MARK), str(path), tokenizer))
    words, size, characters = arrays["counts"].tolist()
    return MeasuredText(arrays["tokens"], words, size, characters, np.array([0, 1]))


def _arrays(raw: bytes, name: str, tokenizer: Tokenizer) -> Arrays:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not text in UTF-8", why=str(error)) from None
    tokens = np.array(tokenizer.encode_plain([text])[0], dtype=np.int32)
    if len(tokens) < 2:
        why = f"it has {len(tokens)} tokens, and the first is only read"
        raise DataError(f"there is nothing to measure in {name}", why=why, fix="give a longer text")
    words = 1 + sum(1 for _ in re.finditer(r"\s+", text))
    return {"tokens": tokens, "counts": np.array([words, len(raw), len(text)], dtype=np.int64)}
