"""Samples that a program has in its memory (a list, a dataset of torch's or of Hugging Face's) as files that a recipe
can name: every process reads them, and so does whoever goes on with the run or evaluates it another day.

They are kept below the cache under a digest of what they say; the same samples are the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.data.cache import build_folder, cache_folder, fingerprint_name
from paddock.data.config import DataConfig
from paddock.data.kept import SAMPLES
from paddock.errors import ConfigError, DataError
from paddock.files import disk_errors
from paddock.phases import phase
from paddock.telemetry.records import plain

Fields = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Given:
    """What was given as an argument, and of which."""

    argument: str
    content: Any

    def items(self) -> Iterator[tuple[str, Any]]:
        """Every sample, with its place for errors."""
        content = self.content
        if hasattr(content, "__len__") and hasattr(content, "__getitem__"):  # torch's need not say where they end
            entries: Iterable[Any] = (content[number] for number in range(len(content)))
        else:
            entries = content
        empty = True
        for number, entry in enumerate(entries):
            empty = False
            yield f"{self.argument}[{number}]", entry
        if empty:
            raise DataError(f"{self.argument} is empty")

    def rows(self, columns: Sequence[str], fix: str) -> list[Row]:
        """Every sample as a record of these columns: of a record, or of values in this order."""
        return [_row(place, entry, columns, fix) for place, entry in self.items()]


def check_samples(argument: str, value: object) -> None:
    """Raise ConfigError for what has no samples one after the other."""
    fix = "give a path, a list of texts or of records, or a dataset of torch's or of Hugging Face's"
    if isinstance(value, Mapping):
        parts = ", ".join(map(str, value))
        raise ConfigError(
            f"{argument} is a dictionary of {parts}" if value else f"{argument} is an empty dictionary",
            why="it may be several parts, or columns, but what is wanted is a row of samples",
            fix=f'give one part, such as dataset["{next(iter(value))}"], or a list of records' if value else fix,
        )
    if hasattr(value, "iloc"):  # of pandas: a frame gives columns where rows are wanted, a series goes by its labels
        is_frame = hasattr(value, "columns")
        raise ConfigError(
            f"{argument} is a {type(value).__name__}",
            why="its items are columns" if is_frame else "its items go by their labels, not by their numbers",
            fix='give frame.to_dict("records")' if is_frame else "give series.tolist()",
        )
    samples = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    if isinstance(value, bytes | type | set | frozenset) or not (samples or hasattr(value, "__iter__")):
        raise ConfigError(f"{argument} is of type {type(value).__name__}", why="it has no samples in a row", fix=fix)


def texts(data: DataConfig, train: Given | None, validation: Given | None) -> Fields:
    """Of a language model: documents in a row, of which the last ones are for validation if there are some."""
    fix = 'give texts, or name the key of records: overrides={"data.json_key": …}'
    key = str(getattr(data, "json_key", "text"))
    parts = [[] if given is None else given.rows([key], fix) for given in (train, validation)]
    for given, rows in zip((train, validation), parts, strict=True):
        for number, row in enumerate(rows):
            if not isinstance(row[key], str):
                assert given is not None
                raise DataError(f"{given.argument}[{number}] has no text", why=f"it is {row[key]!r}", fix=fix)
    kept = [[row for row in rows if row[key].strip()] for rows in parts]  # what is blank is no document
    split = {"split": (len(kept[0]), len(kept[1]), 0)} if validation is not None else {}
    return {"source": "text", "path": str(_lines(data, kept[0] + kept[1]))} | split


def labelled_texts(data: DataConfig, train: Given | None, validation: Given | None) -> Fields:
    """Of a classification: a text, maybe a second one, and a label."""
    columns = [str(getattr(data, name)) for name in ("text", "pair", "label") if getattr(data, name, None) is not None]
    fix = "name the keys: overrides={'data.text': …, 'data.label': …}"
    return {"source": "jsonl"} | _files(data, columns, fix, train, validation)


def text_pairs(data: DataConfig, train: Given | None, validation: Given | None) -> Fields:
    """Of sequence to sequence: a source and a target."""
    columns = [str(getattr(data, "source_key", "source")), str(getattr(data, "target_key", "target"))]
    fix = "name the keys: overrides={'data.source_key': …, 'data.target_key': …}"
    return {"source": "jsonl"} | _files(data, columns, fix, train, validation)


def questions(data: DataConfig, train: Given | None, validation: Given | None) -> Fields:
    """Of question answering: records as Hugging Face's `squad` has them."""
    files = {}
    for name, given in (("train", train), ("validation", validation)):
        if given is not None:
            rows = given.rows(["id", "context", "question", "answers"], "they are those of Hugging Face's squad")
            files[name] = str(_kept(data, f"{name}.json", json.dumps({"data": [_article(row) for row in rows]})))
    return {"source": "squad", "path": None} | files


def _files(data: DataConfig, columns: Sequence[str], fix: str, train: Given | None, validation: Given | None) -> Fields:
    given = {"train": train, "validation": validation}
    return {name: str(_lines(data, one.rows(columns, fix))) for name, one in given.items() if one is not None}


def _row(place: str, entry: Any, columns: Sequence[str], fix: str) -> Row:
    if isinstance(entry, Mapping):
        lacking = [column for column in columns if column not in entry]
        if lacking:
            has = ", ".join(map(str, entry)) or "nothing"
            raise DataError(f"{place} has no {' and no '.join(lacking)}", why=f"it has {has}", fix=fix)
        values = [entry[column] for column in columns]
    elif isinstance(entry, tuple | list):
        values = list(entry)
    else:
        values = [entry]
    if len(values) != len(columns):
        wanted = " and ".join(columns)
        raise DataError(
            f"{place} is of type {type(entry).__name__}, with {len(values)} value{'s' if len(values) > 1 else ''}",
            why=f"a sample is a record with {wanted}, or {len(columns)} in this order",
            fix=fix,
        )
    return dict(zip(columns, map(plain, values), strict=True))


def _article(row: Row) -> Any:
    """A question as an article of its own, in SQuAD's form; its answers may be columns, as in Hugging Face's."""
    answers = row["answers"]
    if isinstance(answers, Mapping):
        columns = (answers.get("text", []), answers.get("answer_start", []))
        answers = [{"text": text, "answer_start": start} for text, start in zip(*columns, strict=True)]
    entry = {"id": row["id"], "question": row["question"], "answers": answers, "is_impossible": not answers}
    return {"paragraphs": [{"context": row["context"], "qas": [entry]}]}


def _lines(data: DataConfig, rows: Sequence[Row]) -> Path:
    return _kept(data, "samples.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))


def _kept(data: DataConfig, name: str, content: str) -> Path:
    """The file with this content, made if it is not there yet."""
    folder = cache_folder(data) / fingerprint_name(SAMPLES, name, content)

    def build(place: Path) -> None:
        (place / name).write_text(content, encoding="utf-8")

    with phase("keeping samples"), disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        build_folder(folder, build)
    return folder / name
