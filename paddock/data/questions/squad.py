"""Questions in SQuAD's JSON form, v1.1 and v2.0: found, read and checked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from paddock.data.questions.config import QuestionAnsweringData
from paddock.documents import Parser, shape_json, uncollected
from paddock.errors import ConfigError, DataError, shown
from paddock.objects.fetch import local_path

BEGINNINGS = {"train": ("train",), "validation": ("dev", "val")}
"""How the names of files begin, by what they are for."""
STRICT = ConfigDict(strict=True)
FORM = '{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": […]}]}]}]}'


class Question(NamedTuple):
    """One question, and what its makers accept as an answer; nothing where the context has none."""

    id: str
    text: str
    context: int
    """Its context's number."""
    answers: tuple[tuple[str, int], ...]
    """Each with the place of its first character."""


@dataclass
class QuestionSet:
    """The questions of a file, and the texts that they are about."""

    contexts: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    skipped: int = 0


def find_file(data: QuestionAnsweringData, part: str) -> Path:
    """The file of one part, "train" or "validation"."""
    named: str | None = getattr(data, part) or data.path
    if named is None:
        raise ConfigError(
            f"data.{part} is not set, nor is data.path",
            why=f"there are no questions for {'training' if part == 'train' else part}",
            fix=f"set --data.path FOLDER or --data.{part} FILE, or take --data.source synthetic",
        )
    path = local_path(named)
    if os.path.isfile(path):
        return path
    if not os.path.isdir(path):
        raise DataError(f"there is no file or folder {path}", why=f"data.{part} or data.path names it")
    version = "v2.0" if data.unanswerable else "v1.1"
    usual = [path / f"{beginning}-{version}.json" for beginning in BEGINNINGS[part]]
    found = [file for file in usual if os.path.isfile(file)]
    others = sorted(file for beginning in BEGINNINGS[part] for file in path.glob(f"{beginning}*.json"))
    if not found and len(others) != 1:
        there = sorted(entry.name for entry in path.iterdir())
        several = f"which of {', '.join(file.name for file in others)} is meant cannot be told" if others else ""
        raise DataError(
            f"{path} has no {usual[0].name}",
            why=several or f"it holds {', '.join(there[:8]) + (' …' if len(there) > 8 else '') or 'nothing'}",
            fix=f"put it there, or name the file with --data.{part}",
        )
    return (found or others)[0]


@with_config(STRICT)
class AnswerEntry(TypedDict):
    """An answer, and the place of its first character in the context."""

    text: Annotated[str, Field(min_length=1)]
    answer_start: Annotated[int, Field(ge=0)]


@with_config(STRICT)
class QuestionEntry(TypedDict):
    """A question, as it is written in a file."""

    id: str | int
    question: str
    answers: NotRequired[list[AnswerEntry]]
    is_impossible: NotRequired[bool | None]


class Malformed(NamedTuple):
    """What stands in place of a question, and is none: it may be left out, and the others read."""

    entry: Any


@with_config(STRICT)
class ParagraphEntry(TypedDict):
    """A context with its questions."""

    context: str
    qas: list[Annotated[QuestionEntry | Annotated[Any, AfterValidator(Malformed)], Field(union_mode="left_to_right")]]


@with_config(STRICT)
class ArticleEntry(TypedDict):
    """What belongs together."""

    paragraphs: list[ParagraphEntry]


@with_config(STRICT)
class SquadFile(TypedDict):
    """The form of SQuAD v1.1 and v2.0. Plain dictionaries: a file has a hundred thousand of them."""

    data: list[ArticleEntry]


@uncollected()
def parse_squad(raw: bytes, path: str | Path, unanswerable: bool, skip: bool = False) -> QuestionSet:
    """The questions in a file's content. What cannot be used is an error or, with `skip`, counted and left out."""
    content = Parser(SquadFile, fix=f"it should be {FORM}")(raw, str(path))
    found, ids = QuestionSet(), set()
    for paragraph in (paragraph for article in content["data"] for paragraph in article["paragraphs"]):
        context = len(found.contexts)
        found.contexts.append(paragraph["context"])
        for entry in paragraph["qas"]:
            try:
                question = _question(entry, paragraph["context"], context, path, unanswerable)
                if question.id in ids:
                    raise DataError(f"{path}: question {question.id} is there twice", fix="give each an id of its own")
            except DataError:
                if not skip:
                    raise
                found.skipped += 1
                continue
            ids.add(question.id)
            found.questions.append(question)
    if not found.questions:
        raise DataError(f"{path} has no questions", why=f"{found.skipped} were left out" if found.skipped else "")
    return found


def _question(
    entry: QuestionEntry | Malformed, context: str, number: int, path: str | Path, unanswerable: bool
) -> Question:
    if isinstance(entry, Malformed):  # say what is wrong with it
        entry = shape_json(entry.entry, QuestionEntry, f"{path}: a question about {context[:40]!r}")
    given, impossible = entry.get("answers", []), entry.get("is_impossible")
    if not entry["question"].strip():
        raise DataError(f"{path}: question {entry['id']} is empty")
    if not given and not unanswerable:
        raise DataError(
            f"{path}: question {entry['id']} has no answer",
            why="SQuAD v2.0 has such questions" if impossible else "",
            fix="set --data.unanswerable true if questions may have none",
        )
    answers = [] if impossible else [(answer["text"], answer["answer_start"]) for answer in given]
    for text, start in answers:
        if not context.startswith(text, start):
            raise _misplaced(text, start, context, f"{path}: question {entry['id']}")
    return Question(str(entry["id"]), entry["question"], number, tuple(answers))


def _misplaced(text: str, start: int, context: str, name: str) -> DataError:
    there = context[start : start + len(text)]
    return DataError(
        f"{name}: its answer is not where it says",
        why=f"the answer is {shown(repr(text))}, but the context has {shown(repr(there))} at character {start}",
        fix="count characters (not bytes) from 0, or leave such questions out with --data.on-error skip",
    )
