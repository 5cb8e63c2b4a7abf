"""Joining corpora: all documents of the first, then of the second, and so on, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.tokenizers.interface import Tokenizer
from paddock.data.tokenizers.remembered import SUFFIX as TOKENIZER
from paddock.data.tokenizers.remembered import common_tokenizer, remember_tokenizer, tokenizer_folder
from paddock.errors import ConfigError, DataError

BLOCK = 1 << 14


@dataclass(frozen=True)
class Merger:
    """Corpora that were looked at and can be joined, with the type that holds the tokens of all."""

    prefixes: tuple[str, ...]
    output: str
    dtype: np.dtype
    notes: tuple[str, ...]
    tokenizer: Tokenizer | None
    """The one that all were made with, if all remember theirs."""
    documents: int
    sequences: int
    tokens: int
    num_bytes: int

    def __str__(self) -> str:
        counts = f"{self.documents:,} documents, {self.sequences:,} sequences, {self.tokens:,} tokens"
        return f"{self.output}: {counts} ({self.dtype.name})"

    def record(self) -> dict[str, object]:
        """The result as JSON has it."""
        counts = {"documents": self.documents, "sequences": self.sequences, "tokens": self.tokens}
        return {"prefix": self.output, "merged": list(self.prefixes), "dtype": self.dtype.name, **counts}

    def run(self, progress: Callable[[int], None]) -> None:
        """Write the joined corpus. `progress` hears of the bytes as they are read."""
        with IndexedWriter(self.output, dtype=self.dtype) as writer:
            for prefix in self.prefixes:
                corpus = IndexedTokens(prefix)
                for first in range(0, corpus.num_documents, BLOCK):
                    borders = corpus.documents[first : first + BLOCK + 1]
                    begin, end = borders.item(0), borders.item(-1)
                    tokens = corpus.read(begin, end)
                    writer.add(tokens, corpus.sizes[begin:end], np.diff(borders))
                    corpus.release()
                    progress(tokens.nbytes)
            if self.tokenizer is not None:
                remember_tokenizer(self.tokenizer, self.output)


def plan_merge(prefixes: list[str], output: str, overwrite: bool = False) -> Merger:
    """Open every corpus, so that what cannot be joined is found before anything is written."""
    if not prefixes:
        raise ConfigError("there is nothing to merge", fix="name the prefixes of two corpora or more, or --input DIR")
    _check_names(prefixes, output, overwrite)
    types: dict[np.dtype, str] = {}
    counts = np.zeros(4, np.int64)
    notes = []
    for prefix in prefixes:
        corpus = IndexedTokens(prefix)
        types.setdefault(corpus.dtype, prefix)
        num_bytes = corpus.num_tokens * corpus.dtype.itemsize
        counts += (corpus.num_documents, len(corpus), corpus.num_tokens, num_bytes)
        if corpus.has_modes:
            notes.append(f"{prefix} is multimodal: the modes of its sequences are not kept")
    dtype = np.result_type(*types).newbyteorder("<")
    if len(types) > 1:
        named = ", ".join(f"{kind.name} ({prefix})" for kind, prefix in types.items())
        notes.append(f"tokens are {named}: all become {dtype.name}, which holds them all")
    known = common_tokenizer(prefixes)
    silent = [prefix for prefix in prefixes if not os.path.isdir(tokenizer_folder(prefix))]
    if silent and known is not None:
        notes.append(f"{silent[0]} does not say which tokenizer it was made with: {output} will not, either")
    tokenizer = None if silent or known is None else known[1]
    return Merger(tuple(prefixes), output, dtype, tuple(notes), tokenizer, *counts.tolist())


def prefixes_in(folder: Path) -> list[str]:
    """The corpora in a folder, by name. Half of one is an error: its documents would be lost."""
    if not os.path.isdir(folder):
        raise DataError(f"--input {folder} is no folder", fix="give prefixes as they are, without --input")
    tokens, indexes = ({path.stem for path in folder.glob(pattern)} for pattern in ("*.bin", "*.idx"))
    alone = tokens ^ indexes
    if alone:
        raise DataError(
            f"{folder} has only one file of {', '.join(sorted(alone))}",
            why="a corpus is PREFIX.bin and PREFIX.idx",
            fix="add the other file, or move this one away",
        )
    if not tokens:
        raise DataError(f"there is no corpus in {folder}", why="it has no .bin and .idx files")
    return [str(folder / stem) for stem in sorted(tokens)]


def _check_names(prefixes: list[str], output: str, overwrite: bool) -> None:
    places: set[str] = set()
    for prefix in prefixes:
        place = os.path.realpath(prefix)
        if place in places:
            raise ConfigError(
                f"{prefix} is given twice",
                fix="name it once; to read a corpus more often, give it a weight in data.path",
            )
        places.add(place)
    if os.path.realpath(output) in places:
        raise ConfigError(f"--output-prefix {output} is one of the inputs", fix="choose another name")
    existing = [name for end in (".bin", ".idx", TOKENIZER) if os.path.exists(name := f"{output}{end}")]
    if existing and not overwrite:
        raise ConfigError(f"{existing[0]} is already there", fix="choose another --output-prefix, or add --overwrite")
