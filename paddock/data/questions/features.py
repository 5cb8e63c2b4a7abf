"""Questions as rows of tokens: [CLS] question [SEP] a window of the context [SEP].

Every context and every question is encoded once; rows are put together when they are read. Places in the text are
characters of the context as it was given, whatever the tokenizer made of it. What takes time is kept in a file that
all processes map into memory, and made again when the questions, the tokenizer or the lengths change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.data.cache import Arrays, cache_of_file
from paddock.data.questions.config import SPECIAL, QuestionAnsweringData
from paddock.data.questions.squad import QuestionSet, find_file, parse_squad
from paddock.data.questions.synthetic import synthetic_squad
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.errors import DataError
from paddock.files import read_regular

Tokens = NDArray[np.int64]

SYNTHETIC = {"train": (0, 3000), "validation": (100_000, 600)}
"""The first text and the number of questions of each part."""
TOGETHER = 2000
"""Texts that are encoded at once, so that memory stays bounded."""


@dataclass(frozen=True)
class QuestionFile:
    """The content of one part of the data, not yet looked into."""

    name: str
    raw: bytes

    @classmethod
    def read(cls, data: QuestionAnsweringData, part: str) -> QuestionFile:
        """The part "train" or "validation"."""
        if data.source == "synthetic":
            first, count = SYNTHETIC[part]
            content = synthetic_squad(count, first, data.unanswerable)
            return cls(f"synthetic-{part}", json.dumps(content).encode())
        path = find_file(data, part)
        try:
            return cls(str(path), read_regular(path))
        except OSError as error:
            raise DataError(f"cannot read {path}", why=error.strerror or "") from None

    def parse(self, data: QuestionAnsweringData) -> QuestionSet:
        return parse_squad(self.raw, self.name, data.unanswerable, data.on_error == "skip")

    def texts(self, data: QuestionAnsweringData) -> list[str]:
        """Everything that is written in it, for learning a tokenizer."""
        found = self.parse(data)
        return [*found.contexts, *(question.text for question in found.questions)]


def load_features(file: QuestionFile, tokenizer: EngineTokenizer, data: QuestionAnsweringData) -> QuestionFeatures:
    """The rows of a file: found in the cache, or made and kept there."""
    cache = cache_of_file(data, "questions", file.name, file.raw, tokenizer.engine.to_str().encode())
    names = ("sequence_length", "stride", "question_length", "unanswerable", "on_error")
    key = {"kind": "questions 1"} | {name: getattr(data, name) for name in names}
    arrays = cache.get(key, lambda: build_arrays(file.parse(data), tokenizer, data, file.name))
    return QuestionFeatures(arrays, tokenizer)


def build_arrays(found: QuestionSet, tokenizer: EngineTokenizer, data: QuestionAnsweringData, name: str) -> Arrays:
    """What a file's questions look like as arrays."""
    contexts = [_Encoded(*encoded) for encoded in _encode(tokenizer, found.contexts)]
    asked = tokenizer.encode_plain([question.text for question in found.questions])
    asked = [ids[: data.question_length] for ids in asked]
    answers = np.full((len(found.questions), 2), -1)
    kept = np.ones(len(found.questions), dtype=np.bool_)
    for number, question in enumerate(found.questions):
        if not question.answers:
            continue
        text, start = question.answers[0]
        first, last = contexts[question.context].tokens_of(start, start + len(text))
        if first > last:
            if data.on_error == "stop":
                raise DataError(
                    f"{name}: question {question.id}: no token stands for its answer",
                    why=f"the tokenizer drops all of {text!r}",
                    fix="leave such questions out with --data.on-error skip",
                )
            kept[number] = False
        answers[number] = first, last
    questions = [question for question, keep in zip(found.questions, kept, strict=True) if keep]
    asked, answers = [ids for ids, keep in zip(asked, kept, strict=True) if keep], answers[kept]
    context_of = np.array([question.context for question in questions])
    sizes = np.array([len(context.ids) for context in contexts])
    windows = _windows(np.array([len(ids) for ids in asked]), sizes[context_of], answers, data)
    return {
        "windows": windows,
        "context_of": context_of.astype(np.int32),
        "skipped": np.array([found.skipped + int((~kept).sum())]),
        **_packed("contexts", [context.ids for context in contexts]),
        "places": np.concatenate([context.offsets for context in contexts]).astype(np.int32),
        **_packed("questions", asked),
        **_written("texts", found.contexts),
        **_written("ids", [question.id for question in questions]),
        **_written("answers", [json.dumps([text for text, _ in question.answers]) for question in questions]),
    }


class QuestionFeatures:
    """The rows of a file's questions, and the texts behind them."""

    def __init__(self, arrays: Arrays, tokenizer: EngineTokenizer) -> None:
        self._arrays = arrays
        self._cls, self._sep = tokenizer.cls_id, tokenizer.sep_id
        self.skipped = int(arrays["skipped"][0])

    def __len__(self) -> int:
        return len(self._arrays["windows"])

    @property
    def num_questions(self) -> int:
        return len(self._arrays["context_of"])

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The tokens of each row."""
        question, start, stop = self._arrays["windows"][:, :3].T.astype(np.int64)
        return SPECIAL + np.diff(self._arrays["questions_begin"])[question] + stop - start

    @cached_property
    def rows_of(self) -> NDArray[np.int64]:
        """How many rows each question has."""
        return np.bincount(self._arrays["windows"][:, 0], minlength=self.num_questions)

    def row(self, index: int) -> tuple[Tokens, Tokens, Tokens]:
        """A row's tokens, their types (0 the question, 1 the context), and where the answer begins and ends in it:
        at 0 if it has none."""
        question, start, stop, *answer = self._arrays["windows"][index].tolist()
        asked = _part(self._arrays, "questions", question)
        shown = _part(self._arrays, "contexts", self._arrays["context_of"].item(question))[start:stop]
        tokens = np.concatenate([[self._cls], asked, [self._sep], shown, [self._sep]])
        token_types = np.zeros(len(tokens), dtype=np.int64)
        token_types[len(asked) + 2 :] = 1
        return tokens.astype(np.int64), token_types, np.array(answer)

    def question_of(self, index: int) -> int:
        """The number of the question that a row asks."""
        return self._arrays["windows"].item(index, 0)

    def characters(self, index: int, first: int, last: int) -> tuple[int, int]:
        """The characters of the context that the tokens `first` to `last` of a row stand for."""
        question, start = self._arrays["windows"][index, :2].tolist()
        before = start - (int(np.diff(self._arrays["questions_begin"][question : question + 2])[0]) + 2)
        begin = self._arrays["contexts_begin"].item(self._arrays["context_of"].item(question)) + before
        offsets = self._arrays["places"]
        return offsets.item(begin + first, 0), offsets.item(begin + last, 1)

    def context(self, question: int) -> str:
        """The text that a question is about."""
        return _read(self._arrays, "texts", self._arrays["context_of"].item(question))

    def id(self, question: int) -> str:
        return _read(self._arrays, "ids", question)

    def answers(self, question: int) -> list[str]:
        """What counts as right; nothing for a question without an answer."""
        found: list[str] = json.loads(_read(self._arrays, "answers", question))
        return found


class _Encoded:
    """A context's tokens, and the characters that each stands for."""

    def __init__(self, ids: list[int], offsets: list[tuple[int, int]]) -> None:
        self.ids = ids
        self.offsets = np.array(offsets, dtype=np.int64).reshape(-1, 2)

    def tokens_of(self, start: int, stop: int) -> tuple[int, int]:
        """The first and the last token that have a part in some characters; the last is before the first if none."""
        first = np.searchsorted(self.offsets[:, 1], start, side="right")
        return int(first), int(np.searchsorted(self.offsets[:, 0], stop, side="left")) - 1


def _encode(tokenizer: EngineTokenizer, texts: Sequence[str]) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    for first in range(0, len(texts), TOGETHER):
        yield from tokenizer.encode_with_offsets(list(texts[first : first + TOGETHER]))


def _windows(
    asked: NDArray[np.int64], sizes: NDArray[np.int64], answers: NDArray[np.int64], data: QuestionAnsweringData
) -> NDArray[np.int32]:
    """Question, first token, end, and the answer's first and last place in the row: of every window."""
    room = data.sequence_length - SPECIAL - asked
    step = room - data.stride
    counts = 1 + np.maximum(0, -(-(sizes - room) // step))
    question = np.repeat(np.arange(len(asked)), counts)
    start = (np.arange(len(question)) - (np.cumsum(counts) - counts)[question]) * step[question]
    stop = np.minimum(start + room[question], sizes[question])
    first, last = answers[question].T
    inside = (first >= start) & (last < stop) & (first >= 0)
    begin = (asked[question] + 2 - start) * inside
    columns = [question, start, stop, first * inside + begin, last * inside + begin]
    return np.stack(columns, axis=1).astype(np.int32)


def _packed(name: str, rows: Sequence[Sequence[int]]) -> Arrays:
    """Rows of different lengths as one array, and where each begins."""
    begin = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    content = np.fromiter((item for row in rows for item in row), dtype=np.int32, count=int(begin[-1]))
    return {name: content, f"{name}_begin": begin}


def _written(name: str, texts: Sequence[str]) -> Arrays:
    encoded = [text.encode() for text in texts]
    begin = np.concatenate([[0], np.cumsum([len(text) for text in encoded], dtype=np.int64)])
    return {name: np.frombuffer(b"".join(encoded), dtype=np.uint8), f"{name}_begin": begin}


def _part(arrays: Arrays, name: str, number: int) -> NDArray[Any]:
    begin = arrays[f"{name}_begin"]
    return arrays[name][begin.item(number) : begin.item(number + 1)]


def _read(arrays: Arrays, name: str, number: int) -> str:
    return _part(arrays, name, number).tobytes().decode()
