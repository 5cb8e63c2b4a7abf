"""Tokenizing word by word, and every word only once.

Most words of a corpus have been seen before. GPT-2's byte-level BPE and BERT's WordPiece never join what stands
before white space with what stands after it, so a text's tokens are its words' tokens one after the other, if a word
is taken with the white space in front of it. Remembering words saves most of the work, and the result is the same,
token by token.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import Tokenizer

# The common kinds of white space begin a word. About others (control characters, mostly) tokenizers differ, so what
# they stand between stays together.
_WORD = re.compile(r"\s*+\S++(?:[^\S \n\r\t]\s*+\S++)*+|\s++")
_SPACE = re.compile(r"\s")
_WORDS_AT_ONCE = 1000


@dataclass(frozen=True)
class Border:
    """A special token that can stand between words and leaves them as they are."""

    token: str
    id: int


class WordCache(dict[str, bytes]):
    """The tokens of words, as bytes of `dtype`. Words come and go: `limit` characters of the latest stay at least,
    twice as many at most, with what a single call needs."""

    def __init__(self, tokenizer: Tokenizer, border: Border, dtype: np.dtype, limit: int = 1 << 20) -> None:
        super().__init__()
        self._tokenizer, self._border, self._dtype, self._limit = tokenizer, border, dtype, limit
        self._held = 0
        self._older: dict[str, bytes] = {}

    def encode(self, texts: list[str]) -> list[bytes]:
        """The tokens of some texts."""
        words = [_WORD.findall(text) for text in texts]
        self._learn([word for word in set(chain.from_iterable(words)) if word not in self and word not in self._older])
        return [b"".join(map(self.__getitem__, part)) for part in words]

    def __missing__(self, word: str) -> bytes:
        tokens = self._older.get(word)
        if tokens is None:
            tokens = np.array(self._tokenizer.encode(word), self._dtype).tobytes()
        self._keep(word, tokens)
        return tokens

    def _learn(self, unknown: list[str]) -> None:
        """Tokenize words, many at a time: the library takes twice as long for one by one."""
        if self._held > self._limit:
            self._older, self._held = dict(self), 0
            self.clear()
        unknown = [word for word in unknown if self._border.token not in word]
        for first in range(0, len(unknown), _WORDS_AT_ONCE):
            part = unknown[first : first + _WORDS_AT_ONCE]
            ids = np.array(self._tokenizer.encode(self._border.token.join(part)), self._dtype)
            borders = np.flatnonzero(ids == self._border.id)
            assert len(borders) == len(part) - 1, "the border stands between the words, and nowhere else"
            tokens, width = ids.tobytes(), self._dtype.itemsize
            begins, ends = [0, *((borders + 1) * width).tolist()], [*(borders * width).tolist(), len(tokens)]
            for word, begin, end in zip(part, begins, ends, strict=True):
                self._keep(word, tokens[begin:end])

    def _keep(self, word: str, tokens: bytes) -> None:
        self[word] = tokens
        self._held += len(word)


def find_border(tokenizer: Tokenizer) -> Border | None:
    """A border for the words of this tokenizer; None unless it is known to treat every word by itself."""
    if type(tokenizer) is not EngineTokenizer:
        return None
    description: dict[str, Any] = json.loads(tokenizer.engine.to_str())
    added = description["added_tokens"]
    if any(token["rstrip"] or _SPACE.search(token["content"]) for token in added) or not _by_words(description):
        return None
    plain = (token for token in added if token["special"] and not (token["lstrip"] or token["normalized"]))
    return next((Border(token["content"], token["id"]) for token in plain if not token["single_word"]), None)


def _by_words(description: dict[str, Any]) -> bool:
    model, normalizer = description["model"], description["normalizer"]
    splitter = description["pre_tokenizer"] or {}
    if description["truncation"] or description["padding"]:
        return False
    if model["type"] == "BPE":
        byte_level = splitter.get("type") == "ByteLevel" and splitter["use_regex"] and not splitter["add_prefix_space"]
        return byte_level and normalizer is None and not model.get("dropout")
    bert = splitter.get("type") == "BertPreTokenizer" and (normalizer or {}).get("type") == "BertNormalizer"
    return model["type"] == "WordPiece" and bert
