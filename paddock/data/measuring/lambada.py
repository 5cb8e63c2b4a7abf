"""LAMBADA: passages from a file, each cut into what a model reads and the last word that it is to find.

A line that is not a passage is an error, a blank one too: whoever counts examples counts lines.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from paddock.data.cache import Arrays, cache_of_file
from paddock.data.lines import read_lines
from paddock.data.measuring.config import LambadaData
from paddock.data.tokenizers.interface import Tokenizer
from paddock.documents import Parser
from paddock.errors import DataError
from paddock.files import open_regular
from paddock.objects.fetch import local_path

BLOCK = 1024
"""Passages that are tokenized together."""


@with_config(ConfigDict(strict=True))
class Passage(TypedDict):
    """A line of the file; lambada_standard says more (its domain), which nobody needs."""

    text: str


_parse: Parser[Passage] = Parser(
    Passage,
    fix='write {"text": "a passage"} on every line; a file that ends early was cut: copy it again',
)


class Example(NamedTuple):
    """What is read, and what is to be found; the blank between them belongs to what is found."""

    where: str
    context: str
    target: str


class LambadaExamples:
    """The passages of a file as tokens, by their number: that of their line, less one."""

    def __init__(self, arrays: Arrays, digest: str) -> None:
        self._arrays, self.digest = arrays, digest
        self.targets: NDArray[np.int32] = arrays["targets"]
        """How many tokens each ends with that are to be found."""
        self.truncated = int(arrays["truncated"][0])
        """How many lost their beginning."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens that the model reads of each: all but the last."""
        return np.diff(self._arrays["begin"]) - 1

    def tokens(self, index: int) -> NDArray[np.int64]:
        begin = self._arrays["begin"]
        return self._arrays["tokens"][begin.item(index) : begin.item(index + 1)].astype(np.int64)

    def parts(self, index: int) -> tuple[list[int], list[int]]:
        """What is read, and what is to be found."""
        tokens, count = self.tokens(index).tolist(), self.targets.item(index)
        return tokens[:-count], tokens[-count:]


def load_examples(data: LambadaData, tokenizer: Tokenizer) -> LambadaExamples:
    """The passages of the file: found in the cache, or made and kept there."""
    path = str(local_path(data.path or ""))
    with _open(path) as stream:
        digest = hashlib.file_digest(cast(BytesIO, stream), "sha256").hexdigest()  # any open file will do
    cache = cache_of_file(data, "lambada", path, digest.encode(), tokenizer.content())
    key = {"kind": "lambada 1"} | {name: getattr(data, name) for name in ("source", "form", "sequence_length")}
    return LambadaExamples(cache.get(key, lambda: _arrays(data, path, tokenizer)), digest)


def split_passage(text: str, form: str) -> tuple[str, str]:
    """What of a passage is read, and what is to be found, by the form's own rule; the latter begins with a blank."""
    if form == "harness":
        before, _, last = text.rpartition(" ")
        context = before.rstrip()
        return context, f"{before[len(context) :]} {last}"
    words = text.rsplit(None, 1)
    return (words[0], f" {words[1]}") if len(words) == 2 else ("", text)


def encode_examples(examples: Sequence[Example], tokenizer: Tokenizer, form: str) -> Iterator[tuple[list[int], int]]:
    """The tokens of each, and how many of them, at the end, are to be found. A word is cut into tokens as it stands in
    the text: what is to be found is what the text's tokens have behind those of the context."""
    wholes = tokenizer.encode_plain([example.context + example.target for example in examples])
    if form == "last_token":
        yield from ((whole, 1) for whole in wholes)
        return
    contexts = tokenizer.encode_plain([example.context for example in examples])
    for whole, context in zip(wholes, contexts, strict=True):
        target = whole[len(context) :]
        yield [*context, *target], len(target)


def _examples(data: LambadaData, path: str) -> Iterator[Example]:
    with _open(path) as stream:
        for where, line in read_lines(stream, path):
            if not line or line.isspace():
                raise DataError(
                    f"{where} is blank", why="every line is a passage, and is counted", fix="take the line out"
                )
            text = _parse(line, where)["text"] if data.source == "jsonl" else line
            context, target = split_passage(text, data.form)
            if not context or not target.strip():
                raise DataError(
                    f"{where} has no last word to find" if context else f"{where} has one word only, or none",
                    why="the last word of a passage is to be found, given those before it",
                    fix="complete the passage, or take the line out",
                )
            yield Example(where, context, target) if data.form != "last_token" else Example(where, text, "")


def _arrays(data: LambadaData, path: str, tokenizer: Tokenizer) -> Arrays:
    tokens, begin, targets, truncated = array("i"), array("q", [0]), array("i"), 0
    examples = _examples(data, path)
    while block := list(islice(examples, BLOCK)):
        for example, (row, count) in zip(block, encode_examples(block, tokenizer, data.form), strict=True):
            _check(example.where, len(row), count, data.sequence_length)
            truncated += len(row) > data.sequence_length + 1
            tokens.extend(row[-data.sequence_length - 1 :])
            begin.append(len(tokens))
            targets.append(count)
    if not targets:
        raise DataError(f"{path} has no lines")
    return {
        "tokens": np.asarray(tokens, dtype=np.int32),
        "begin": np.asarray(begin, dtype=np.int64),
        "targets": np.asarray(targets, dtype=np.int32),
        "truncated": np.array([truncated]),
    }


def _check(where: str, length: int, count: int, longest: int) -> None:
    if not 0 < count < length:
        raise DataError(
            f"{where} has {count} tokens to find, of {length}",
            why="the tokenizer leaves nothing of the last word, or nothing of what stands before it",
            fix="take the line out",
        )
    if count > longest:
        raise DataError(
            f"{where} has a last word of {count} tokens",
            why=f"the model reads {longest} (data.sequence_length)",
            fix="take the line out",
        )


def _open(path: str) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise DataError(f"cannot read {path}", why=error.strerror or "", fix="check --lambada") from None
