"""Texts with labels, from JSON lines or tables, as rows of tokens: [CLS] text [SEP], or [CLS] text [SEP] pair [SEP]."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.data.cache import Arrays, cache_of_file
from paddock.data.labels.config import LabelledTextData
from paddock.data.lines import read_columns, read_lines
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.documents import parse_document
from paddock.errors import ConfigError, DataError
from paddock.files import read_regular
from paddock.objects.fetch import local_path

SYNTHETIC = {"train": range(3000), "validation": range(100_000, 100_500)}
WORDS = {
    "good": "lovely brilliant warm funny clever moving".split(),
    "bad": "dull clumsy cold boring silly empty".split(),
}
THINGS = "film book play song story game".split()
_NUMBER = re.compile("-?[0-9]{1,18}")


class Example(NamedTuple):
    """A text, maybe a second one, and its label as it is written."""

    text: str
    pair: str | None
    label: str


@dataclass(frozen=True)
class LabelledFile:
    """The content of one part of the data."""

    name: str
    raw: bytes

    @classmethod
    def read(cls, data: LabelledTextData, part: str) -> LabelledFile:
        """The part "train" or "validation"."""
        if data.source == "synthetic":
            lines = (json.dumps(_synthetic(number)) for number in SYNTHETIC[part])
            return cls(f"synthetic-{part}", "\n".join(lines).encode())
        named: str | None = getattr(data, part)
        if named is None:
            raise ConfigError(
                f"data.{part} is not set", why="there are no texts to read", fix=f"set --data.{part} FILE"
            )
        path = local_path(named)
        try:
            return cls(str(path), read_regular(path))
        except OSError as error:
            raise DataError(f"cannot read {path}", why=error.strerror or "", fix=f"check --data.{part}") from None

    def examples(self, data: LabelledTextData) -> list[Example]:
        """Every line, checked."""
        columns = [data.text, *([] if data.pair is None else [data.pair]), data.label]
        if data.source == "synthetic":
            columns = ["text", "label"]
        fix = "name the columns with --data.text, --data.pair and --data.label"
        found = []
        for _, line in read_columns(read_lines(BytesIO(self.raw), self.name), data.source, columns, fix):
            values = [str(line[column]) for column in columns]
            found.append(Example(values[0], values[1] if len(values) == 3 else None, values[-1]))
        if not found:
            raise DataError(f"{self.name} has no lines")
        return found


class LabelledRows:
    """The rows of a file, by their number, and the labels that occur in it."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self.classes: tuple[str, ...] = tuple(
            parse_document(arrays["classes"].tobytes(), list[str], "the cache of labelled texts")
        )
        self.lengths: NDArray[np.int64] = np.diff(arrays["rows_begin"])
        self.labels: NDArray[np.int32] = arrays["labels"]

    def __len__(self) -> int:
        return len(self.labels)

    def row(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A row's tokens, and their types: 0 the text, 1 the pair."""
        begin = self._arrays["rows_begin"]
        tokens = self._arrays["rows"][begin.item(index) : begin.item(index + 1)].astype(np.int64)
        token_types = (np.arange(len(tokens)) >= self._arrays["first"].item(index)).astype(np.int64)
        return tokens, token_types


def load_rows(file: LabelledFile, tokenizer: EngineTokenizer, data: LabelledTextData) -> LabelledRows:
    """The rows of a file: found in the cache, or made and kept there."""
    cache = cache_of_file(data, "labelled", file.name, file.raw, tokenizer.content())
    names = ("source", "text", "pair", "label", "sequence_length")
    key = {"kind": "labelled 1"} | {name: getattr(data, name) for name in names}
    return LabelledRows(cache.get(key, lambda: _arrays(file.examples(data), tokenizer, data)))


def encode_rows(
    texts: Sequence[str], pairs: Sequence[str] | None, tokenizer: EngineTokenizer, longest: int
) -> list[tuple[list[int], int]]:
    """Each text as a row of at most `longest` tokens, and where its second text begins."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert cls is not None and sep is not None
    first = tokenizer.encode_plain(list(texts))
    if pairs is None:
        rows = [[cls, *ids[: longest - 2], sep] for ids in first]
        return [(row, len(row)) for row in rows]
    found = []
    for one, other in zip(first, tokenizer.encode_plain(list(pairs)), strict=True):
        keep, keep_other = _fit(len(one), len(other), longest - 3)
        row = [cls, *one[:keep], sep, *other[:keep_other], sep]
        found.append((row, keep + 2))
    return found


def class_names(labels: Sequence[str]) -> list[str]:
    """The labels that occur, in order: numbers by their value."""
    distinct = sorted(set(labels))
    numbers = all(_NUMBER.fullmatch(label) for label in distinct)
    return sorted(distinct, key=int) if numbers else distinct


def _arrays(examples: Sequence[Example], tokenizer: EngineTokenizer, data: LabelledTextData) -> Arrays:
    pairs = [example.pair or "" for example in examples] if data.pair is not None else None
    encoded = encode_rows([example.text for example in examples], pairs, tokenizer, data.sequence_length)
    classes = class_names([example.label for example in examples])
    number = {name: index for index, name in enumerate(classes)}
    return {
        "rows": np.array([token for row, _ in encoded for token in row], dtype=np.int32),
        "rows_begin": np.concatenate([[0], np.cumsum([len(row) for row, _ in encoded], dtype=np.int64)]),
        "first": np.array([first for _, first in encoded], dtype=np.int32),
        "labels": np.array([number[example.label] for example in examples], dtype=np.int32),
        "classes": np.frombuffer(json.dumps(classes).encode(), dtype=np.uint8),
    }


def _fit(one: int, other: int, room: int) -> tuple[int, int]:
    """How much of two texts to keep: the longer gives way until they are alike."""
    if one + other <= room:
        return one, other
    half = room // 2
    if one <= half:
        return one, room - one
    return (room - other, other) if other <= room - half else (half, room - half)


def _synthetic(number: int) -> dict[str, str]:
    generator = np.random.default_rng([21, number])
    label = str(generator.choice(list(WORDS)))
    words = [str(word) for word in generator.choice(WORDS[label], 2, replace=False)]
    thing = str(generator.choice(THINGS))
    form = ("The {2} was {0} and {1}.", "A {0} {2}, and {1} too.", "What a {0}, {1} {2} that was!")
    return {"text": form[int(generator.integers(len(form)))].format(*words, thing), "label": label}
