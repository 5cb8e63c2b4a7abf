"""What the rest of Paddock knows of a tokenizer, whichever library does the work; and of the files it is made from."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from paddock.data.config import MOST_SENTINELS
from paddock.documents import Document, read_document
from paddock.errors import ConfigError, DataError, UserError, shown
from paddock.files import atomic_write

CONFIG_NAME = "tokenizer_config.json"
LIKELY_SENTINELS = 200
"""How far behind a missing sentinel others are looked for: T5 has 100."""
LARGEST_FILE = 2**27
"""Bytes of a tokenizer's file: a hundred megabytes are plenty."""

USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "end_of_text": ("<|endoftext|>", "</s>", "[EOS]", "[SEP]", "<|end_of_text|>", "<eos>"),
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "unk": ("[UNK]", "<unk>"),
}
"""The parts that special tokens play, and the names they usually have."""


class Tokenizer(ABC):
    """Text to token ids and back.

    Encoding adds no special tokens, but the name of one inside the text becomes that token, as in transformers;
    decoding leaves special tokens out.
    """

    @property
    def sentinels_descend(self) -> bool:
        """Whether it is of T5's kind, in whose files <extra_id_0> has the highest id, and the others follow down."""
        return False

    def __init__(self, end_of_text: str | None = None, named: Mapping[str, str] | None = None) -> None:
        """`named` has names for the other parts; what is not named goes by the usual names, if they exist."""
        if end_of_text is not None and self.id_of(end_of_text) is None:
            raise ConfigError(
                f'tokenizer.end_of_text = "{end_of_text}"',
                why="the tokenizer has no such token",
                fix="set --tokenizer.end-of-text to the token that ends a document",
            )
        wanted = {**(named or {}), **({"end_of_text": end_of_text} if end_of_text is not None else {})}
        self.special: dict[str, str] = {}
        """The tokens that play a part, by part."""
        for part, usual in USUAL_NAMES.items():
            candidates = (wanted[part], *usual) if part in wanted else usual
            for name in candidates:
                if self.id_of(name) is not None:
                    self.special[part] = name
                    break
        self.end_of_text = self.special.get("end_of_text")
        self.end_of_text_id = self.special_id("end_of_text")
        self.pad_id = self.special_id("pad")
        self.cls_id = self.special_id("cls")
        self.sep_id = self.special_id("sep")
        self.mask_id = self.special_id("mask")
        self.unk_id = self.special_id("unk")
        self.sentinel_ids = find_sentinels(self.id_of)
        """<extra_id_0>, <extra_id_1>, … in this order; empty if there are none."""

    def __repr__(self) -> str:
        special = ", ".join(f"{part} {name}" for part, name in self.special.items()) or "no special ones"
        return f"<{self.algorithm} tokenizer of {self.vocab_size:,} tokens: {special}>"

    @property
    def algorithm(self) -> str:
        """How it cuts texts, as the field calls it."""
        return type(self).__name__.removesuffix("Tokenizer")

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """One more than the highest id."""

    @abstractmethod
    def id_of(self, token: str) -> int | None:
        """A token's id, if there is such a token."""

    @abstractmethod
    def token_at(self, id: int) -> str:
        """The token with this id; empty for an id that the vocabulary leaves out."""

    @abstractmethod
    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Every text as ids: the fast way, on as many threads as TOKENIZERS_PARALLELISM and RAYON_NUM_THREADS allow."""

    def encode_plain(self, texts: list[str]) -> list[list[int]]:
        """What a model reads: without marks of Chinese words, which only masking looks at."""
        return self.encode_batch(texts)

    @abstractmethod
    def decode(self, ids: list[int]) -> str:
        """The text that these ids stand for."""

    @abstractmethod
    def content(self) -> bytes:
        """What decides which ids a text becomes: for digests."""

    @abstractmethod
    def continuation(self) -> NDArray[np.bool_]:
        """For every id, whether it continues the word of the token before it: for masking whole words."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the files from which load_tokenizer_folder and transformers make this tokenizer again."""

    def decode_named(self, ids: list[int]) -> str:
        """As text, with the sentinels and the end token by their names, which `decode` leaves out."""
        names = {id: sentinel_name(index) for index, id in enumerate(self.sentinel_ids)}
        if self.end_of_text_id is not None and self.end_of_text is not None:
            names[self.end_of_text_id] = self.end_of_text
        parts: list[str] = []
        for is_named, together in groupby(ids, lambda id: id in names):
            run = list(together)
            parts += [names[id] for id in run] if is_named else [self.decode(run).strip()]
        return " ".join(part for part in parts if part)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def unmarked(self) -> NDArray[np.int64]:
        """For every id, the id without its mark of a Chinese word (see tokenizers/chinese.py): what a model of plain
        characters reads and predicts. Without such marks every id stands for itself."""
        return np.arange(self.vocab_size)

    def special_id(self, part: str) -> int | None:
        """The id of the token that plays this part: end_of_text, pad, cls, sep, mask or unk."""
        name = self.special.get(part)
        return None if name is None else self.id_of(name)

    def write_config(self, folder: Path, **settings: Any) -> None:
        """Write the configuration that transformers looks for, with the special tokens and these settings."""
        names = {f"{'eos' if part == 'end_of_text' else part}_token": name for part, name in self.special.items()}
        with atomic_write(folder / CONFIG_NAME) as stream:
            json.dump({**names, "clean_up_tokenization_spaces": False, **settings}, stream, indent=2)


class NamedToken(Document):
    """A token, as transformers writes one that is matched in a way of its own."""

    content: str


class TokenizerSettings(Document):
    """What we read of a tokenizer_config.json."""

    eos_token: str | NamedToken | None = None
    pad_token: str | NamedToken | None = None
    cls_token: str | NamedToken | None = None
    sep_token: str | NamedToken | None = None
    mask_token: str | NamedToken | None = None
    unk_token: str | NamedToken | None = None
    do_lower_case: bool | None = None
    chinese_whole_words: bool | None = None
    extra_ids: int | None = Field(None, ge=0, le=MOST_SENTINELS)

    def token(self, part: str) -> str | None:
        """The name of the token that plays a part: eos, pad, cls, sep, mask or unk."""
        token: str | NamedToken | None = getattr(self, f"{part}_token")
        return token.content if isinstance(token, NamedToken) else token

    @property
    def is_uncased(self) -> bool:
        """Of a vocab.txt, as transformers takes it."""
        return self.do_lower_case is not False


def read_settings(path: Path) -> TokenizerSettings:
    """What a tokenizer_config.json says, if there is one."""
    if not os.path.isfile(path):
        return TokenizerSettings()
    return read_document(path, TokenizerSettings, max_bytes=LARGEST_FILE)


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn whatever a tokenizer's library raises into an error of ours. A panic of Rust is not even an Exception."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise DataError(what, why=shown(" ".join(str(error).split())) or type(error).__name__) from None


def sentinel_name(index: int) -> str:
    """T5's name for the token that stands for the span of this number."""
    return f"<extra_id_{index}>"


def find_sentinels(id_of: Callable[[str], int | None]) -> list[int]:
    """The ids of the sentinels in their order. mT5's vocabulary has them with a space in front."""
    for mark in ("", "▁"):
        ids: list[int] = []
        while (id := id_of(mark + sentinel_name(len(ids)))) is not None:
            ids.append(id)
        if ids:
            return ids
    return []


def missing_sentinel(tokenizer: Tokenizer) -> str | None:
    """A sentinel that is not there, though one of a higher number is: those behind it would never be used."""
    found = len(tokenizer.sentinel_ids)
    mark = "" if not found or tokenizer.id_of(sentinel_name(0)) is not None else "▁"
    behind = (mark + sentinel_name(index) for index in range(found + 1, found + LIKELY_SENTINELS))
    return sentinel_name(found) if any(tokenizer.id_of(name) is not None for name in behind) else None


def check_text(name: str, text: str) -> None:
    """Raise for what no tokenizer takes: bytes of a command line, or halves of a character, that UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{name} is not text in UTF-8", why=f"character {error.start + 1} is {text[error.start]!a}"
        ) from None
