"""Which tokens of a tokenizer a corpus uses: text, JSON lines or an indexed corpus, read once, a chunk at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from paddock.data.indexed.reader import IndexedTokens
from paddock.data.preprocess.chunks import Chunk, Position, read_chunks
from paddock.data.preprocess.inputs import check_readable, stat_input
from paddock.data.preprocess.parsing import parse_lines
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import Tokenizer
from paddock.data.tokenizers.trimming import half_matched
from paddock.errors import DataError

CHUNK = 1 << 20
"""Bytes of text, or sequences of an indexed corpus, that are looked at together."""
JSON_LINES = (".jsonl", ".json")


def used_tokens(tokenizer: Tokenizer, corpora: Sequence[str], json_keys: Sequence[str]) -> NDArray[np.bool_]:
    """For every id, whether one of the corpora has it. Files that end in .jsonl are JSON lines and those in .parquet
    tables, of which the values of these keys are read; PREFIX.bin and PREFIX.idx are indexed tokens; all else is text.
    Compressed files will do."""
    for corpus in corpora:  # before any of them is read
        if not is_indexed(corpus):
            if not os.path.exists(corpus):
                fix = "give a text file, a .jsonl file, or the prefix of PREFIX.bin and PREFIX.idx"
                raise DataError(f"there is no corpus {corpus}", fix=fix)
            check_readable(stat_input(corpus), json_keys)
    used = np.zeros(tokenizer.vocab_size, np.bool_)
    for corpus in corpora:
        if is_indexed(corpus):
            _mark_indexed(IndexedTokens(corpus), used)
        else:
            _mark_texts(tokenizer, _texts(corpus, json_keys), used)
    if not used.any():
        raise DataError(
            f"there is no text in {', '.join(corpora)}",
            why="no token would be kept but the special ones",
            fix="give the text that the model is to be used for",
        )
    return used


def is_indexed(corpus: str) -> bool:
    return os.path.isfile(f"{corpus}.idx")


def _mark_indexed(corpus: IndexedTokens, used: NDArray[np.bool_]) -> None:
    for first in range(0, len(corpus), CHUNK):
        tokens = np.unique(corpus.read(first, min(len(corpus), first + CHUNK)))
        if len(tokens) and not 0 <= tokens[0] <= tokens[-1] < len(used):
            raise DataError(
                f"the tokenizer does not fit {corpus.prefix}",
                why=f"the corpus has token {tokens[-1]}, and the tokenizer {len(used)} tokens",
                fix="give a corpus that was made with the model's tokenizer",
            )
        used[tokens] = True
        corpus.release()


def _mark_texts(tokenizer: Tokenizer, chunks: Iterator[list[str]], used: NDArray[np.bool_]) -> None:
    unknown = tokenizer.unk_id
    for texts in chunks:
        for ids in tokenizer.encode_batch(texts):
            used[ids] = True
        if isinstance(tokenizer, EngineTokenizer) and tokenizer.cuts_by_longest_match and unknown is not None:
            for text, (ids, places) in zip(texts, tokenizer.encode_with_offsets(texts), strict=True):
                used[ids] = True  # where the tokenizer marks Chinese words, also the plain characters
                for begin, end in (place for id, place in zip(ids, places, strict=True) if id == unknown):
                    used[half_matched(tokenizer, text[begin:end])] = True


def _texts(path: str, json_keys: Sequence[str]) -> Iterator[list[str]]:
    """The texts of a file, some at a time."""
    source = stat_input(path)
    is_json = source.is_table or path.removesuffix(".gz").removesuffix(".zst").endswith(JSON_LINES)
    for chunk in read_chunks([source], Position(), CHUNK, keys=json_keys):
        if is_json:
            found = parse_lines(chunk.data, chunk.begin.line, json_keys, begins_file=chunk.begin.offset == 0)
            if found.bad:
                raise DataError(
                    f"{path}, {source.unit} {found.bad[0].line}, cannot be used",
                    why=found.bad[0].reason,
                    fix="mend it, or name the keys with text: --json-keys KEY…",
                )
            yield [text for texts in found.texts for text in texts]
        else:
            yield _lines(path, chunk)


def _lines(path: str, chunk: Chunk) -> list[str]:
    try:
        text = chunk.data.decode("utf-8-sig" if chunk.begin.offset == 0 else "utf-8")
    except UnicodeDecodeError as error:
        line = chunk.begin.line + chunk.data.count(b"\n", 0, error.start)
        raise DataError(f"{path}, line {line}, is not text in UTF-8", fix="give a text file, or .jsonl") from None
    return [line for line in (line.strip("\r") for line in text.split("\n")) if line]
