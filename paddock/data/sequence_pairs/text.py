"""Pairs of texts from JSON lines, tables or two files of lines, as rows of tokens: each text with its end token."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from itertools import islice, zip_longest
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from paddock.data.cache import Arrays, cache_of_file
from paddock.data.lines import read_columns, read_lines
from paddock.data.sequence_pairs.config import SequencePairsData
from paddock.data.tokenizers.interface import Tokenizer
from paddock.errors import ConfigError, DataError
from paddock.files import open_regular
from paddock.objects.fetch import local_path

BLOCK = 1024
"""Pairs that are tokenized together."""
SYNTHETIC = {"train": range(5000), "validation": range(100_000, 100_200)}
WORDS = "apple bread chair eagle garden house island lemon".split()


class Pair(NamedTuple):
    """A source and its target, each with its place."""

    source_place: str
    source: str
    target_place: str
    target: str


@dataclass(frozen=True)
class PairsFile:
    """One part of the data: a file, or two."""

    data: SequencePairsData
    part: str
    """train or validation."""

    @property
    def names(self) -> tuple[str, ...]:
        if self.data.source == "synthetic":
            return (f"synthetic-{self.part}",)
        named: tuple[str, ...] | None = getattr(self.data, self.part)
        if named is None:
            raise ConfigError(
                f"data.{self.part} is not set", why="there are no pairs to read", fix=f"set --data.{self.part} FILE"
            )
        return tuple(str(local_path(name)) for name in named)

    @cached_property
    def digest(self) -> str:
        """Of the content."""
        found = hashlib.sha256()
        for name in self.names:
            with self._open(name) as stream:
                content = hashlib.file_digest(cast(BytesIO, stream), "sha256")  # any open file will do
                found.update(content.digest())
        return found.hexdigest()

    def pairs(self) -> Iterator[Pair]:
        """Every pair in the order of the file, checked; of a file of any length, one at a time is in memory."""
        empty = True
        for pair in self._pairs():
            for what, place, text in (("source", *pair[:2]), ("target", *pair[2:])):
                if not text.strip():
                    raise DataError(f"{place} has an empty {what}", fix="fill it, or leave the pair out")
            empty = False
            yield pair
        if empty:
            raise DataError(f"{' and '.join(self.names)}: there are no lines")

    def texts(self) -> Iterator[str]:
        """What a tokenizer learns from."""
        for pair in self.pairs():
            yield self.data.prefix + pair.source
            yield pair.target

    def _pairs(self) -> Iterator[Pair]:
        names, data = self.names, self.data
        if data.source == "text":
            yield from self._lines_of_two(*names)
            return
        keys = ("source", "target") if data.source == "synthetic" else (data.source_key, data.target_key)
        fix = "name the keys or columns with --data.source-key and --data.target-key"
        with self._open(names[0]) as stream:
            for where, row in read_columns(read_lines(stream, names[0]), data.source, keys, fix):
                source, target = (str(row[key]) for key in keys)
                yield Pair(where, source, where, target)

    def _lines_of_two(self, sources: str, targets: str) -> Iterator[Pair]:
        with self._open(sources) as one, self._open(targets) as other:
            lines = zip_longest(read_lines(one, sources), read_lines(other, targets))
            for number, (source, target) in enumerate(lines):
                if source is None or target is None:
                    longer, shorter = (targets, sources) if source is None else (sources, targets)
                    more = number + 1 + sum(1 for _ in lines)
                    raise DataError(
                        f"{shorter} has {number} lines, and {longer} has {more}",
                        why="line by line they are a source and its target",
                        fix="look where they part: an empty line may have been left out",
                    )
                yield Pair(*source, *target)

    def _open(self, name: str) -> BinaryIO:
        if self.data.source == "synthetic":
            lines = (json.dumps(_synthetic(number)) for number in SYNTHETIC[self.part])
            return BytesIO("\n".join(lines).encode())
        try:
            return open_regular(name)
        except OSError as error:
            raise DataError(f"cannot read {name}", why=error.strerror or "", fix=f"check --data.{self.part}") from None


class SequencePairs:
    """The pairs of a file, by their number."""

    def __init__(self, arrays: Arrays, digest: str) -> None:
        self._arrays, self.digest = arrays, digest
        self.source_lengths: NDArray[np.int64] = np.diff(arrays["sources_begin"])
        self.cut_sources, self.cut_targets = arrays["cut"].tolist()
        """How many were longer than they may be."""

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, index: int) -> NDArray[np.int64]:
        """The tokens that the encoder reads."""
        return self._part("sources", index).astype(np.int64)

    def target(self, index: int) -> NDArray[np.int64]:
        """The tokens that the decoder is to write."""
        return self._part("targets", index).astype(np.int64)

    def target_text(self, index: int) -> str:
        """The target as it stands in the file: whole, where tokens were cut."""
        return self._part("texts", index).tobytes().decode()

    def describe(self) -> str:
        """A line about the content."""
        cut = f", {self.cut_sources} sources and {self.cut_targets} targets cut"
        return f"{len(self)} pairs, {self.digest[:12]}{cut if self.cut_sources or self.cut_targets else ''}"

    def _part(self, name: str, index: int) -> NDArray[np.generic]:
        begin = self._arrays[f"{name}_begin"]
        return self._arrays[name][begin.item(index) : begin.item(index + 1)]


def load_pairs(file: PairsFile, tokenizer: Tokenizer) -> SequencePairs:
    """The pairs of a file: found in the cache, or made and kept there."""
    data = file.data
    cache = cache_of_file(data, "pairs", file.names[0], file.digest.encode(), tokenizer.content())
    names = ("source", "source_key", "target_key", "sequence_length", "target_length", "truncate")
    prefix = hashlib.sha256(data.prefix.encode()).hexdigest()[:24]  # of any length, and a key is short
    key = {"kind": "pairs 1", "prefix": prefix} | {name: getattr(data, name) for name in names}
    return SequencePairs(cache.get(key, lambda: _arrays(file, tokenizer)), file.digest)


def encode_source(texts: Sequence[str], tokenizer: Tokenizer, prefix: str) -> list[list[int]]:
    """What the encoder reads of texts, uncut."""
    assert tokenizer.end_of_text_id is not None
    return [[*ids, tokenizer.end_of_text_id] for ids in tokenizer.encode_plain([prefix + text for text in texts])]


@dataclass
class _Rows:
    """Tokens of all sources, or of all targets, behind one another."""

    what: str
    setting: str
    longest: int
    tokens: array[int] = field(default_factory=lambda: array("i"))
    begin: array[int] = field(default_factory=lambda: array("q", [0]))
    cut: int = 0
    first_cut: str = ""
    most: int = 0

    def add(self, rows: Iterable[Sequence[int]], places: Iterable[str]) -> None:
        for row, place in zip(rows, places, strict=True):
            if len(row) == 1:
                raise DataError(f"{place} has a {self.what} without tokens", why="the tokenizer drops all of it")
            if len(row) > self.longest:
                self.first_cut = self.first_cut or f"{place} has a {self.what} of {len(row)} tokens"
                self.cut, self.most = self.cut + 1, max(self.most, len(row))
                row = [*row[: self.longest - 1], row[-1]]
            self.tokens.extend(row)
            self.begin.append(len(self.tokens))

    def check(self) -> None:
        if self.cut:
            count = len(self.begin) - 1
            raise DataError(
                self.first_cut,
                why=f"data.{self.setting} = {self.longest}, and {self.cut} of {count} {self.what}s are longer",
                fix=f"set --data.{self.setting.replace('_', '-')} {self.most} (the longest), or --data.truncate",
            )


def _arrays(file: PairsFile, tokenizer: Tokenizer) -> Arrays:
    data, end = file.data, tokenizer.end_of_text_id
    assert end is not None
    sources = _Rows("source", "sequence_length", data.sequence_length)
    targets = _Rows("target", "target_length", data.target_length)
    texts, texts_begin = bytearray(), array("q", [0])
    pairs = file.pairs()
    while block := list(islice(pairs, BLOCK)):
        encoded = encode_source([pair.source for pair in block], tokenizer, data.prefix)
        sources.add(encoded, (pair.source_place for pair in block))
        written = tokenizer.encode_plain([pair.target for pair in block])
        targets.add(([*ids, end] for ids in written), (pair.target_place for pair in block))
        for pair in block:
            texts += pair.target.encode()
            texts_begin.append(len(texts))
    if not data.truncate:
        sources.check()
        targets.check()
    return {
        "sources": np.asarray(sources.tokens, dtype=np.int32),
        "sources_begin": np.asarray(sources.begin, dtype=np.int64),
        "targets": np.asarray(targets.tokens, dtype=np.int32),
        "targets_begin": np.asarray(targets.begin, dtype=np.int64),
        "texts": np.frombuffer(texts, dtype=np.uint8),
        "texts_begin": np.asarray(texts_begin, dtype=np.int64),
        "cut": np.array([sources.cut, targets.cut], dtype=np.int64),
    }


def _synthetic(number: int) -> dict[str, str]:
    generator = np.random.default_rng([22, number])
    words = [str(word) for word in generator.choice(WORDS, int(generator.integers(2, 7)), replace=False)]
    return {"source": " ".join(words), "target": " ".join(reversed(words))}
