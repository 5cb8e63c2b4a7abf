"""The task: its samples, its batches, and what it makes of a model's outputs."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paddock.data.loading.workers import BatchReader
from paddock.data.questions.config import QuestionAnsweringData
from paddock.errors import UserError
from paddock.tasks.question_answering import QuestionAnswering
from paddock.tasks.task import Batch, Judgement
from paddock.testing.samples.texts import word_tokenizer

PARAGRAPHS: list[dict[str, Any]] = [
    {"context": "Berlin is the capital of Germany.", "qas": [("1", "Where ?", "Berlin"), ("2", "of ?", "Germany")]},
    {"context": " ".join(["x"] * 40) + " Berlin", "qas": [("3", "Where is the capital ?", "Berlin")]},
    {"context": "x b c", "qas": [("4", "who ?", None)]},
]


def write(folder: Path, unanswerable: bool) -> None:
    paragraphs = []
    for paragraph in PARAGRAPHS:
        context, entries = paragraph["context"], []
        for name, question, answer in paragraph["qas"]:
            places = [] if answer is None else [{"text": answer, "answer_start": context.index(answer)}]
            if places or unanswerable:
                entries.append({"id": name, "question": question, "answers": places, "is_impossible": not places})
        paragraphs.append({"context": context, "qas": entries})
    content = json.dumps({"data": [{"paragraphs": paragraphs}]})
    for name in ("train", "dev"):
        (folder / f"{name}.json").write_text(content)


def task_over(folder: Path, seed: int = 1, **settings: Any) -> QuestionAnswering:
    write(folder, settings.get("unanswerable", False))
    lengths = {"sequence_length": 24, "question_length": 6, "stride": 4, "cache": str(folder / "cache")}
    return QuestionAnswering(
        QuestionAnsweringData(path=str(folder), **{**lengths, **settings}), word_tokenizer(folder), seed
    )


def pointing(batch: Batch, right: float = 9.0) -> torch.Tensor:
    """Outputs that point at the labels."""
    outputs = torch.zeros(*batch["tokens"].shape, 2)
    for row, (first, last) in enumerate(batch["labels"].tolist()):
        outputs[row, first, 0] = outputs[row, last, 1] = right
    return outputs


def judged(task: QuestionAnswering, size: int, right: float = 9.0, limit: int | None = None) -> dict[str, float]:
    """Metrics of a model that points at the labels, in batches of `size`."""
    samples = task.validation_samples()
    found = Judgement({"loss": 0.0, "count": 0.0})
    for first in range(0, limit or len(samples), size):
        rows = range(first, min(first + size, limit or len(samples)))
        batch = task.collate([samples[index] for index in rows])
        found.add(task.judge(batch, pointing(batch, right)))
    return task.metrics(Judgement(**json.loads(json.dumps({"sums": found.sums, "records": found.records}))))


def test_training_samples_depend_on_the_seed_and_their_number(tmp_path: Path) -> None:
    samples, same, other = (task_over(tmp_path, seed).training_samples() for seed in (1, 1, 2))
    count = int(samples.samples_per_epoch)
    assert count == 6  # the long context has four windows

    def rows(source: Any, epoch: int) -> list[list[int]]:
        return [source[index]["tokens"].tolist() for index in range(epoch * count, (epoch + 1) * count)]

    assert rows(samples, 0) == rows(same, 0) and rows(samples, 3) == rows(same, 3)
    assert sorted(rows(samples, 0)) == sorted(rows(samples, 1)) == sorted(rows(other, 0))
    orders = [rows(source, epoch) for source in (samples, other) for epoch in range(4)]
    assert len({json.dumps(order) for order in orders}) > 4
    task = task_over(tmp_path)
    reader = BatchReader(task.training_samples(), task.collate)
    again = pickle.loads(pickle.dumps(reader))  # noqa: S301 (loader workers get it this way)
    assert all(torch.equal(value, reader[range(4)][name]) for name, value in again[range(4)].items())


def test_training_batches_have_one_shape(tmp_path: Path) -> None:
    task = task_over(tmp_path)
    samples = task.training_samples()
    batch = task.collate([samples[index] for index in range(6)])
    assert batch["tokens"].shape == batch["token_types"].shape == (6, 24)
    assert batch["labels"].shape == (6, 2) and task.count(batch) == 6
    for row in range(6):
        length = int(batch["lengths"][row])
        assert (batch["tokens"][row, length:] == 0).all() and (batch["tokens"][row, :length] != 0).all()
    longest = task_over(tmp_path, padding="longest")
    short = [sample for index in range(6) if len((sample := longest.training_samples()[index])["tokens"]) <= 16]
    assert longest.collate(short)["tokens"].shape == (len(short), 16)


def test_evaluation_batches_are_as_long_as_they_must(tmp_path: Path) -> None:
    task = task_over(tmp_path)
    samples = task.validation_samples()
    assert [len(samples[index]["tokens"]) for index in range(len(samples))] == list(samples.lengths)  # type: ignore[attr-defined]
    assert task.collate([samples[0]])["tokens"].shape == (1, 16)
    assert task.collate([samples[2]])["tokens"].shape == (1, 24)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_every_question_is_scored(tmp_path: Path, size: int) -> None:
    task = task_over(tmp_path)
    metrics = judged(task, size)
    # Three of four windows of the long context have no answer, and there the model points at [CLS].
    assert (metrics["exact_match"], metrics["f1"]) == (100, 100)
    lengths = np.array([sample["tokens"].shape for sample in map(task.validation_samples().__getitem__, range(6))])
    assert len(lengths) == 6 and metrics["loss"] < 0.01
    assert task.summary(metrics) == "QA Metric = {'QA Metric': {'exact_match': 100.0, 'f1': 100.0}}"


def test_the_loss_is_that_of_the_model(tmp_path: Path) -> None:
    task = task_over(tmp_path)
    samples = task.validation_samples()
    batch = task.collate([samples[index] for index in range(6)])
    outputs = torch.randn(*batch["tokens"].shape, 2, generator=torch.Generator().manual_seed(0))
    found = task.judge(batch, outputs)
    expected = torch.nn.functional.cross_entropy(outputs, batch["labels"], reduction="sum") / 2
    assert found.sums["loss"] == pytest.approx(float(expected), rel=1e-5) and found.sums["count"] == 6


def test_a_limit_leaves_out_what_is_not_whole(tmp_path: Path) -> None:
    task = task_over(tmp_path)
    records = [[0, 5.0, 0, 6, 0.0], [1, 5.0, 0, 6, 0.0], [2, 5.0, 0, 1, 0.0]]  # of question 2 one window of four
    metrics = task.metrics(Judgement({"loss": 3.0, "count": 3.0}, records))
    assert (metrics["exact_match"], metrics["loss"]) == (50, 1)
    few = task.metrics(Judgement({"loss": 1.0, "count": 1.0}, records[2:]))
    assert few["exact_match"] == 0  # but something is said where nothing is whole


def test_questions_without_an_answer(tmp_path: Path) -> None:
    metrics = judged(task_over(tmp_path, unanswerable=True), 3)
    # Of the long context the windows without its answer say there is none; the best window decides.
    assert metrics["no_answer_exact_match"] == 100 and metrics["has_answer_exact_match"] == 100
    assert metrics["exact_match"] == metrics["f1"] == 100
    bold = judged(task_over(tmp_path, unanswerable=True, null_threshold=100.0), 3)
    assert bold["no_answer_exact_match"] == 0 and bold["has_answer_exact_match"] == 100
    timid = judged(task_over(tmp_path, unanswerable=True, null_threshold=-100.0), 3)
    assert timid["no_answer_exact_match"] == 100 and timid["has_answer_exact_match"] == 0


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    task = task_over(tmp_path, on_error="skip")
    content = json.loads((tmp_path / "dev.json").read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["question"] = " "
    (tmp_path / "dev.json").write_text(json.dumps(content))
    assert task.notes() == []
    task.training_samples(), task.validation_samples()
    assert task.notes() == ["1 of 3 validation questions cannot be used and are left out"]
    strict = task_over(tmp_path)
    (tmp_path / "dev.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="question 1 is empty"):
        strict.validation_samples()


def test_a_context_without_tokens_is_answered_with_nothing(tmp_path: Path) -> None:
    task = task_over(tmp_path, unanswerable=True)
    content = json.loads((tmp_path / "dev.json").read_text())
    content["data"][0]["paragraphs"][2]["context"] = "\x07"
    (tmp_path / "dev.json").write_text(json.dumps(content))
    metrics = judged(task, 2)
    assert metrics["exact_match"] == 100 and math.isfinite(metrics["loss"])
