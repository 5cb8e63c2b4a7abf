"""Sequence classification and masked language modelling: small on the seams, so a few checks each."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.data.indexed.writer import IndexedWriter
from paddock.errors import ConfigError, DataError
from paddock.models.config import IGNORED
from paddock.tasks.registry import build_task, prepare_data
from paddock.tasks.task import Judgement
from paddock.testing.layouts import small_bert
from paddock.testing.samples.texts import word_tokenizer, write_vocabulary


def changed(recipe: Recipe, **sections: Any) -> Recipe:
    values = recipe.to_dict()
    for name, fields in sections.items():
        values[name] = fields if isinstance(fields, str) else {**values[name], **fields}
    return recipe_from_dict(values)


def classification(folder: Path, train: list[str], validation: list[str], **model: Any) -> Recipe:
    for name, labels in (("train", train), ("validation", validation)):
        lines = [json.dumps({"text": f"x {label}", "label": label}) for label in labels]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    files = {part: str(folder / f"{part}.jsonl") for part in ("train", "validation")}
    wordpiece = {"kind": "wordpiece", "vocab": str(write_vocabulary(folder)), "lower_case": True}
    recipe = small_bert("sequence_classification", str(folder / "cache"), model={**model})
    return changed(recipe, data={"source": "jsonl", **files}, tokenizer=wordpiece)


def test_classes_and_accuracy(tmp_path: Path) -> None:
    recipe = classification(tmp_path, ["good", "bad", "so", "good"], ["so", "good", "so"], classes=3)
    prepared = prepare_data(recipe)
    assert prepared.classes == ("bad", "good", "so")
    task = build_task(recipe, prepared)
    samples = task.training_samples()
    assert samples.samples_per_epoch == 4
    batch = task.collate([samples[index] for index in range(4)])
    assert batch["tokens"].shape == (4, 48) and sorted(batch["labels"].tolist()) == [0, 1, 1, 2]
    held_out = task.validation_samples()
    batch = task.collate([held_out[index] for index in range(3)])
    assert batch["labels"].tolist() == [2, 1, 2] and batch["tokens"].shape == (3, 8) and task.count(batch) == 3
    found = Judgement({"loss": 0.0, "count": 0.0})
    found.add(task.judge(batch, torch.tensor([[0.0, 0.0, 5.0]] * 3)))
    metrics = task.metrics(found)
    assert metrics["accuracy"] == pytest.approx(200 / 3)
    right, wrong = math.log(1 + 2 * math.exp(-5)), math.log(2 + math.exp(5))
    assert metrics["loss"] == pytest.approx((2 * right + wrong) / 3)


def test_an_evaluation_needs_no_training_file(tmp_path: Path) -> None:
    recipe = changed(classification(tmp_path, ["x"], ["so", "good", "so"]), data={"train": None})
    prepared = prepare_data(recipe)
    assert prepared.classes == ("good", "so")
    task = build_task(recipe, prepared)
    held_out = task.validation_samples()
    assert [held_out[index]["labels"] for index in range(3)] == [1, 0, 1]
    with pytest.raises(ConfigError, match="data.train is not set"):
        task.training_samples()


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model.classes = 2") as error:
        prepare_data(classification(tmp_path, ["good", "bad", "so"], ["so"]))
    assert "--model.classes 3" in str(error.value)
    task = build_task(classification(tmp_path, ["good", "bad"], ["so"]))
    with pytest.raises(DataError, match='has the label "so"'):
        task.validation_samples()


def masked(folder: Path, **data: Any) -> Recipe:
    tokenizer = word_tokenizer(folder)
    with IndexedWriter(folder / "corpus_text_document", tokenizer.vocab_size) as writer:
        for number in range(40):
            writer.add_document(tokenizer.encode("the capital of germany is berlin " * (1 + number % 4)))
    recipe = small_bert("masked_language_modeling", str(folder / "cache"), model={"vocab": tokenizer.vocab_size})
    wordpiece = {"kind": "wordpiece", "vocab": str(folder / "vocab.txt"), "lower_case": True}
    corpus = {"source": "indexed", "path": str(folder / "corpus_text_document"), "split": (8, 2, 0)}
    return changed(recipe, data={**corpus, **data}, tokenizer=wordpiece)


@pytest.mark.parametrize("whole_words", [False, True])
def test_masking_an_indexed_corpus(tmp_path: Path, whole_words: bool) -> None:
    recipe = masked(tmp_path, whole_words=whole_words)
    task, tokenizer = build_task(recipe), word_tokenizer(tmp_path)
    samples, held_out = task.training_samples(), task.validation_samples()
    assert samples.samples_per_epoch == 32 and len(held_out) == 8
    batch = task.collate([samples[index] for index in range(32)])
    assert set(batch) == {"tokens", "token_types", "labels", "places", "lengths"} and batch["tokens"].shape == (32, 48)
    assert batch["labels"].shape == batch["places"].shape == (32, round(0.15 * 48))
    asked = batch["labels"] != IGNORED
    assert task.count(batch) == int(asked.sum()) > 32
    for row in range(32):  # those of the samples, at their places
        own = torch.from_numpy(samples[row]["labels"])
        kept = batch["places"][row][asked[row]]
        assert torch.equal(own[kept], batch["labels"][row][asked[row]]) and len(kept) == int((own != IGNORED).sum())
    hidden = (batch["tokens"].gather(1, batch["places"]) == tokenizer.mask_id) & asked
    assert 0.5 < float(hidden.sum() / asked.sum()) < 1
    for row, length in zip(batch["tokens"].tolist(), batch["lengths"].tolist(), strict=True):
        assert row[0] == tokenizer.cls_id and row[length - 1] == tokenizer.sep_id
        assert set(row[length:]) <= {tokenizer.pad_id}
    metrics = task.metrics(Judgement({"loss": 6.0, "count": 3.0}))
    assert metrics == {"loss": 2.0, "perplexity": pytest.approx(math.exp(2))}


def test_the_validation_part_must_hold_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the validation part is empty"):
        build_task(masked(tmp_path, split=(1, 0, 0))).validation_samples()


@pytest.mark.parametrize(
    "task, sections, message",
    [
        ("question_answering", {"model": {"head": "sequence_classification"}}, "model.head = sequence_classification"),
        ("question_answering", {"data": {"source": "squad"}}, "--data.path FOLDER"),
        ("sequence_classification", {"data": {"source": "tsv"}}, "data.source = tsv reads files, and none is named"),
        (
            "sequence_classification",
            {"data": {"source": "tsv", "train": "x"}, "evaluate": {"every": 5}},
            "data.validation names no file",
        ),
        ("question_answering", {"tokenizer": {"kind": "none"}}, "tokenizer.kind = none"),
        ("question_answering", {"data": {"padding": "longest"}, "parallel": {"pipeline": 2}}, "data.padding = longest"),
        ("question_answering", {"data": {"sequence_length": 80}}, "the model has only 48 positions"),
        ("sequence_classification", {"parallel": {"tensor": 3, "sequence": True}}, "3"),
        ("masked_language_modeling", {"data": {"source": "indexed"}}, "data.path is not set"),
        ("masked_language_modeling", {"data": {"source": "indexed", "path": "x"}}, "tokenizer.kind = none"),
        ("masked_language_modeling", {"tokenizer": {"kind": "trained"}}, "synthetic tokens stand for no text"),
        ("masked_language_modeling", {"data": {"whole_words": True}}, "random tokens are no words"),
    ],
)
def test_rules(tmp_path: Path, task: str, sections: dict[str, Any], message: str) -> None:
    recipe = changed(small_bert(task, str(tmp_path)), **sections)
    world = sections.get("parallel", {}).get("pipeline", sections.get("parallel", {}).get("tensor", 1))
    with pytest.raises(ConfigError) as error:
        check_recipe(recipe, world)
    assert message in str(error.value)


def test_a_family_that_does_not_do_the_task(tmp_path: Path) -> None:
    recipe = small_bert("masked_language_modeling", str(tmp_path)).to_dict()
    corpus = {"source": "synthetic", "sequence_length": 48}
    with pytest.raises(ConfigError, match="task = language_modeling") as error:
        check_recipe(recipe_from_dict({**recipe, "task": "language_modeling", "data": corpus}), 1)
    assert "bert is made for masked_language_modeling" in str(error.value)
