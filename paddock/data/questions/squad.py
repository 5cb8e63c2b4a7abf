"""Questions in SQuAD's JSON form, v1.1 and v2.0: found, read and checked."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.data.questions.config import QuestionAnsweringData
from paddock.data.tokenizers.interface import check_text
from paddock.errors import ConfigError, DataError
from paddock.files import user_path

BEGINNINGS = {"train": ("train",), "validation": ("dev", "val")}
"""How the names of files begin, by what they are for."""


@dataclass(frozen=True)
class Question:
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
    path = user_path(named)
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


def parse_squad(raw: bytes, path: str | Path, unanswerable: bool, skip: bool = False) -> QuestionSet:
    """The questions in a file's content. What cannot be used is an error or, with `skip`, counted and left out."""
    try:
        content = json.loads(raw.decode())
    except ValueError as error:  # wrong UTF-8 and wrong JSON alike
        raise DataError(f"{path} is not JSON", why=str(error), fix="give a file in SQuAD's form") from None
    found, ids = QuestionSet(), set()
    for paragraph in _paragraphs(content, path):
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


def _paragraphs(content: Any, path: str | Path) -> list[dict[str, Any]]:
    """All paragraphs of all articles, if this is SQuAD's form at all."""

    def wrong(why: str) -> DataError:
        form = '{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": […]}]}]}]}'
        return DataError(f"{path} is not in SQuAD's form", why=why, fix=f"it should be {form}")

    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        raise wrong('it is no JSON object with a list "data"')
    paragraphs: list[dict[str, Any]] = []
    for number, article in enumerate(articles):
        inside = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(inside, list):
            raise wrong(f'article {number} has no list "paragraphs"')
        for place, paragraph in enumerate(inside):
            where = f"paragraph {place} of article {number}"
            if not isinstance(paragraph, dict) or not isinstance(paragraph.get("context"), str):
                raise wrong(f'{where} has no text "context"')
            if not isinstance(paragraph.get("qas"), list):
                raise wrong(f'{where} has no list "qas"')
            check_text(f"{path}: the context of {where}", paragraph["context"])
            paragraphs.append(paragraph)
    return paragraphs


def _question(entry: Any, context: str, number: int, path: str | Path, unanswerable: bool) -> Question:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str | int):
        raise DataError(f"{path}: a question about {context[:40]!r} has no id")
    name, text, given = f"{path}: question {entry['id']}", entry.get("question"), entry.get("answers", [])
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{name} is empty" if isinstance(text, str) else f"{name} has no text")
    check_text(name, text)
    if not isinstance(given, list):
        raise DataError(f"{name} has no list of answers", why=f"it is {given!r}")
    if not given and not unanswerable:
        raise DataError(
            f"{name} has no answer",
            why="SQuAD v2.0 has such questions" if entry.get("is_impossible") else "",
            fix="set --data.unanswerable true if questions may have none",
        )
    answers = [] if entry.get("is_impossible") else [_answer(answer, context, name) for answer in given]
    return Question(str(entry["id"]), text, number, tuple(answers))


def _answer(answer: Any, context: str, name: str) -> tuple[str, int]:
    text, start = (answer.get("text"), answer.get("answer_start")) if isinstance(answer, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(start, int) or not text or start < 0:
        raise DataError(f"{name} has an answer without text or answer_start", why=f"it is {answer!r}")
    there = context[start : start + len(text)]
    if there != text:
        raise DataError(
            f"{name}: its answer is not where it says",
            why=f"the answer is {text!r}, but the context has {there!r} at character {start}",
            fix="count characters (not bytes) from 0, or leave such questions out with --data.on-error skip",
        )
    return text, start
