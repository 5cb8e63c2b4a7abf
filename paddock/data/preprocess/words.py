"""Tokenizing word by word, and every word only once.

Most words of a corpus have been seen before. GPT-2's byte-level BPE and BERT's WordPiece never join what stands
before a run of white space with what stands after it, so a text's tokens are its words' tokens one after the other,
if a word is taken with the white space in front of it. Remembering words saves most of the work, and the result is
the same, token by token.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from paddock.data.tokenizer import Tokenizer
from paddock.data.tokenizers.engine import EngineTokenizer

# The common kinds of white space begin a word. About others (control characters, mostly) tokenizers differ, so what
# they stand between stays together.
_WORD = re.compile(r"\s*+\S++(?:[^\S \n\r\t]\s*+\S++)*+|\s++")
_SPACE = re.compile(r"\s")


class WordMemory(dict[str, bytes]):
    """The tokens of words as bytes of `dtype`. It holds the latest `limit` words at least, twice as many at most."""

    def __init__(self, tokenizer: Tokenizer, dtype: np.dtype, limit: int = 1 << 17, longest: int = 64) -> None:
        super().__init__()
        self._tokenizer, self._dtype, self._limit, self._longest = tokenizer, dtype, limit, longest
        self._older: dict[str, bytes] = {}

    def encode(self, text: str) -> bytes:
        """The tokens of a text."""
        return b"".join(map(self.__getitem__, _WORD.findall(text)))

    def __missing__(self, word: str) -> bytes:
        tokens = self._older.get(word)
        if tokens is None:
            tokens = np.array(self._tokenizer.encode(word), self._dtype).tobytes()
        if len(word) <= self._longest:  # longer ones hardly come again: Chinese lines, addresses
            if len(self) >= self._limit:
                self._older = dict(self)
                self.clear()
            self[word] = tokens
        return tokens


def reads_words_apart(tokenizer: Tokenizer) -> bool:
    """Whether this tokenizer is known to treat every word by itself, wherever it stands."""
    if type(tokenizer) is not EngineTokenizer:
        return False
    description: dict[str, Any] = json.loads(tokenizer.engine.to_str())
    if description.get("truncation") or description.get("padding"):
        return False
    for token in description["added_tokens"]:
        if token["rstrip"] or _SPACE.search(token["content"]):
            return False
    model, normalizer = description["model"], description["normalizer"]
    splitter = description["pre_tokenizer"] or {}
    if model["type"] == "BPE":
        by_words = splitter.get("type") == "ByteLevel" and splitter["use_regex"] and not splitter["add_prefix_space"]
        return by_words and normalizer is None and not model.get("dropout")
    bert = splitter.get("type") == "BertPreTokenizer" and (normalizer or {}).get("type") == "BertNormalizer"
    return model["type"] == "WordPiece" and bert
