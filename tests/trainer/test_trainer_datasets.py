"""Samples that a program has in its memory: lists, and datasets of torch's and of Hugging Face's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from paddock import Trainer
from paddock.data.questions.synthetic import synthetic_squad
from paddock.errors import UserError
from paddock.testing.samples.texts import sample_prompts

MakeTrainer = Callable[..., Trainer]
CLASSIFIES: dict[str, Any] = {
    "task": "sequence_classification",
    "model": {"family": "bert", "layers": 2, "hidden": 32, "heads": 2, "context": 32, "vocab": 400},
    "data": {"sequence_length": 32},
    "tokenizer": {"kind": "trained"},
    "batch": {"micro": 4, "global": 8},
    "train": {"steps": 2},
}


class Rows(Dataset[Any]):
    """As people write them: without an end that a loop would notice."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> Any:
        return self._rows[number % len(self._rows)]


class Stream(IterableDataset[Any]):
    """Without a length."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


class HuggingFace:
    """What Hugging Face's `Dataset` offers of itself: columns, and rows by their number."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {name: values[number] for name, values in self._columns.items()}


class Series:
    """What tells one of pandas'."""

    iloc = None


class Frame(Series):
    columns = ("text",)


def lines_of(trainer: Trainer, field: str = "path") -> list[Any]:
    named: Any = getattr(trainer.recipe.data, field)
    path = named[0] if isinstance(named, tuple) else named
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_all_forms_of_the_same_texts_are_the_same_corpus(small: MakeTrainer) -> None:
    texts = ["a castle", "two robots", "a lighthouse\u2028at night", "中文"]
    forms = [
        texts,
        tuple(texts),
        [{"text": text, "other": 1} for text in texts],
        [(text,) for text in texts],
        Rows(texts),
        Stream([{"text": text} for text in texts]),
        HuggingFace({"text": texts, "id": [1, 2, 3, 4]}),
        (text for text in texts),
    ]
    paths = {small(train_dataset=form).recipe.data.path for form in forms}
    assert len(paths) == 1
    assert lines_of(small(train_dataset=texts)) == [{"text": text} for text in texts]
    named = small(train_dataset=[{"body": text} for text in texts], overrides={"data.json_key": "body"})
    assert lines_of(named) == [{"body": text} for text in texts]


def test_texts_train_as_they_do_in_a_file(small: MakeTrainer, tmp_path: Path) -> None:
    prompts = sample_prompts()
    file = tmp_path / "prompts.txt"
    file.write_text("".join(f"{prompt}\n" for prompt in prompts), encoding="utf-8")
    given = small(run_dir=tmp_path / "given").train()
    read = small(train_dataset=file, run_dir=tmp_path / "read").train()
    assert given["loss"] == read["loss"]


def test_texts_for_validation_are_those_that_are_validated_on(small: MakeTrainer) -> None:
    prompts = sample_prompts()
    trainer = small(train_dataset=[*prompts[:200], " "], eval_dataset=prompts[200:240])
    assert trainer.recipe.data.split == (200, 40, 0)  # type: ignore[attr-defined]
    assert [line["text"] for line in lines_of(trainer)] == prompts[:240]
    assert trainer.train()["step"] == 4


def test_the_run_is_resumed_and_evaluated_by_who_has_no_samples(small: MakeTrainer, tmp_path: Path) -> None:
    from paddock.cli.main import run

    trainer = small()
    trainer.train()
    assert run(["cache", "clean", "--yes"]) == 0, "the samples stay: they are nowhere else"
    assert run(["evaluate", str(trainer.run_dir)]) == 0


def test_labelled_texts(small: MakeTrainer, tmp_path: Path) -> None:
    rows = [(f"a {word} film", label) for word, label in (("good", 1), ("bad", 0)) for _ in range(8)]
    records = HuggingFace({"text": [text for text, _ in rows], "label": torch.tensor([label for _, label in rows])})
    by_torch = Trainer(args=CLASSIFIES, train_dataset=Rows(rows), eval_dataset=rows[:4])
    by_column = Trainer(args=CLASSIFIES, train_dataset=records, eval_dataset=Stream(rows[:4]))
    assert by_torch.recipe == by_column.recipe
    assert lines_of(by_torch, "train")[0] == {"text": "a good film", "label": 1}
    assert len(lines_of(by_torch, "validation")) == 4


def test_questions_as_hugging_face_has_them(small: MakeTrainer) -> None:
    squad = synthetic_squad(4, 0)
    rows = []
    for paragraph in (paragraph for article in squad["data"] for paragraph in article["paragraphs"]):
        for entry in paragraph["qas"]:
            answers = entry["answers"]
            columns = {name: [answer[name] for answer in answers] for name in ("text", "answer_start")}
            rows.append({**entry, "context": paragraph["context"], "answers": columns})
    trainer = Trainer(model="bert/tiny", train_dataset=Rows(rows), eval_dataset=rows[:2])
    from paddock.data.questions.squad import find_file, parse_squad

    data: Any = trainer.recipe.data
    for part, count in (("train", len(rows)), ("validation", 2)):
        file = find_file(data, part)
        questions = parse_squad(file.read_bytes(), file, unanswerable=False).questions
        assert [one.id for one in questions] == [str(row["id"]) for row in rows[:count]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, "train_dataset is of type int"),
        ([], "train_dataset is empty"),
        (b"bytes", "train_dataset is of type bytes"),
        (Series(), r"train_dataset is a Series(.|\n)*give series\.tolist\(\)"),
        (Frame(), r'train_dataset is a Frame(.|\n)*give frame\.to_dict\("records"\)'),
        ({"train": [], "test": []}, 'dataset\\["train"\\]'),
        ([{"body": "x"}], r"train_dataset\[0\] has no text"),
        (["x", 7], r"train_dataset\[1\] has no text"),
        ([("x", 1)], r"train_dataset\[0\] is of type tuple, with 2 values"),
    ],
)
def test_what_holds_no_samples_is_refused_at_once(given: Any, message: str, small: MakeTrainer) -> None:
    with pytest.raises(UserError) as refused:
        small(train_dataset=given)
    assert re.search(message, str(refused.value)), refused.value


def test_tasks_and_forms_that_do_not_go_together(small: MakeTrainer) -> None:
    with pytest.raises(UserError, match="is a path, and the other one is not"):
        small(train_dataset="a.txt", eval_dataset=["b"])
    with pytest.raises(UserError) as refused:
        Trainer(model="resnet/50", train_dataset=[(torch.zeros(3, 8, 8), 1)])
    assert "image_classification reads files" in str(refused.value)


def test_a_text_too_short_to_be_split_is_told_so(small: MakeTrainer) -> None:
    with pytest.raises(UserError) as refused:
        small(train_dataset=["a b c"]).train()
    told = str(refused.value)
    assert re.search(r"leaves it 0 of the \d tokens of the one document, which is split inside it", told), told
    with pytest.raises(UserError, match="leaves it 0 of 3 documents\n"):
        small(train_dataset=["a", "b", "c"], overrides={"data.split": (98, 1, 1)}).train()
