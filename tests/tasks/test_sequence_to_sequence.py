"""Sequence to sequence: batches, what is measured, rules, and a model that learns to write words backwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.rules import check_evaluation, check_recipe
from paddock.data.loading.sampler import evaluation_batches
from paddock.errors import ConfigError, DataError, MachineError
from paddock.evaluation.held_out import asked
from paddock.evaluation.text_scores import TextScorer, text_metrics
from paddock.evaluation.written import judge_written
from paddock.inference.generation.options import GenerationOptions
from paddock.models.config import IGNORED
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model
from paddock.tasks import sequence_to_sequence
from paddock.tasks.registry import build_task, prepare_data, task_called
from paddock.tasks.task import Judgement
from paddock.testing.samples.texts import write_vocabulary
from paddock.trainer import Trainer

PAIRS = [("the capital of germany is", "berlin"), ("who is in berlin", "the capital"), ("where", "germany berlin is")]


def recipe_of(folder: Path, pairs: Sequence[tuple[str, str]] = PAIRS, **sections: Any) -> Recipe:
    lines = [json.dumps({"source": source, "target": target}) for source, target in pairs]
    for part in ("train", "validation"):
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    files = {part: [str(folder / f"{part}.jsonl")] for part in ("train", "validation")}
    own = {
        "data": {"source": "jsonl", **files, "cache": str(folder / "cache"), "sequence_length": 12},
        "tokenizer": {"kind": "wordpiece", "vocab": str(write_vocabulary(folder)), "lower_case": True},
        "batch": {"micro": 4, "global": 16},
    }
    return recipe_from_dict(merge(merge(load_recipe("t5/reverse").to_dict(), own), sections))


def test_a_batch(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, model={"decoder_start": 2})
    prepared = prepare_data(recipe)
    task, tokenizer = build_task(recipe, prepared), prepared.tokenizer
    assert tokenizer is not None
    samples, held_out = task.training_samples(), task.validation_samples()
    assert samples.samples_per_epoch == 3 and len(held_out) == 3
    batch = task.collate([samples[index] for index in range(3)])
    assert batch["tokens"].shape == (3, 12) and batch["labels"].shape == batch["decoder_tokens"].shape == (3, 16)
    batch = task.collate([held_out[index] for index in range(3)])
    assert batch["tokens"].shape == (3, 8) and batch["labels"].shape == (3, 8)
    assert batch["lengths"].tolist() == [6, 5, 2] == held_out.lengths.tolist()  # type: ignore[attr-defined]
    end, pad = tokenizer.end_of_text_id, tokenizer.pad_id
    target = tokenizer.encode(PAIRS[1][1])
    assert batch["tokens"][1].tolist() == [*tokenizer.encode(PAIRS[1][0]), end, pad, pad, pad]
    assert batch["labels"][1].tolist() == [*target, end, *[IGNORED] * 5]
    assert batch["decoder_tokens"][1].tolist() == [2, *target, *[pad] * 5]
    assert task.count(batch) == 2 + 3 + 4
    assert str(task.sample_shape(batch)) == "8 → 8" and task.num_tokens(batch) == 48


def test_loss_and_accuracy_are_those_of_the_logits_without_padding_and_smoothing(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, model={"label_smoothing": 0.3})
    task = build_task(recipe)
    held_out = task.validation_samples()
    model = build_model(recipe.model)
    initialize(model, 5)
    batch = task.collate([held_out[index] for index in range(3)])
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    model.eval()
    with torch.no_grad():
        logits = model(**inputs)
        counts = batch["labels"] != IGNORED
        batch["labels"][counts & (torch.arange(8) == 0)] = logits[:, 0].argmax(-1)  # some that are right
        found = task.judge(batch, model(**asked(task, batch)))
        metrics = task.metrics(found)
        labels = batch["labels"].flatten()
        expected = F.cross_entropy(logits.flatten(0, 1), labels, reduction="sum")
        right = (logits.argmax(-1) == batch["labels"]).sum()
        assert found.sums["loss"] == pytest.approx(float(expected), rel=1e-5) and found.sums["count"] == 9
        assert float(model(**batch)) == pytest.approx(float(expected), rel=1e-5), "an evaluation is not smoothed"
        model.train()
        smoothed = F.cross_entropy(logits.flatten(0, 1), labels, reduction="sum", label_smoothing=0.3)
        assert float(model(**batch)) == pytest.approx(float(smoothed), rel=1e-5)
    assert 3 <= right < 9
    assert metrics == {"loss": pytest.approx(float(expected) / 9), "token_accuracy": pytest.approx(100 * right / 9)}


def test_padding_changes_nothing(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path)
    task = build_task(recipe)
    samples, model = task.validation_samples(), build_model(recipe.model).eval()
    initialize(model, 5)
    with torch.no_grad():
        together = float(model(**task.collate([samples[index] for index in range(3)])))
        alone = sum(float(model(**task.collate([samples[index]]))) for index in range(3))
    assert together == pytest.approx(alone, rel=1e-5)


def test_what_was_cut_is_told_and_kept(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train.jsonl:1 has a source of 6 tokens"):
        build_task(recipe_of(tmp_path, data={"sequence_length": 5})).training_samples()
    task = build_task(recipe_of(tmp_path, data={"sequence_length": 4, "truncate": True}))
    assert not task.notes()
    task.training_samples()
    assert task.notes() == [
        "of 3 training pairs, 2 sources are longer than 4 tokens and 0 targets longer than 16: they are cut"
    ]
    assert "2 sources and 0 targets cut" in str(task.fingerprint()["training data"])
    assert task.metrics(Judgement({"loss": 1.0, "count": 1.0}))["truncated"] == 2


def test_what_a_position_means(tmp_path: Path) -> None:
    """Another prefix, length or file makes other samples, and the record of a run says so."""
    first = build_task(recipe_of(tmp_path)).fingerprint()
    assert build_task(recipe_of(tmp_path)).fingerprint() == first
    changes: list[dict[str, Any]] = [{"prefix": "who: "}, {"sequence_length": 11}, {"target_length": 9}]
    for change in changes:
        assert build_task(recipe_of(tmp_path, data=change)).fingerprint() != first
    assert build_task(recipe_of(tmp_path, PAIRS[:2])).fingerprint() != first


@pytest.mark.parametrize(
    "sections, processes, message",
    [
        ({"data": {"train": None, "validation": None}}, 1, "data.source = jsonl reads files, and none is named"),
        ({"tokenizer": {"kind": "none", "vocab": None, "lower_case": False}}, 1, "tokenizer.kind = none"),
        ({"data": {"validation": None}}, 1, "data.validation names no file"),
        ({"data": {"padding": "longest"}, "parallel": {"pipeline": 2}}, 2, "data.padding = longest"),
        ({"data": {"generate": "always"}, "parallel": {"tensor": 2}}, 2, "with parallel.tensor = 2 no process has the"),
        ({"data": {"generate": "always"}, "parallel": {"pipeline": 2}}, 2, "paddock evaluate RUN"),
        ({"data": {"generate": "always"}, "parallel": {"shard": "parameters"}}, 2, "parallel.shard = parameters"),
        ({"data": {"num_beams": 500}}, 1, "the vocabulary has 320 tokens"),
        ({"model": {"decoder_start": 320}}, 1, "model.decoder_start = 320"),
        ({"model": {"label_smoothing": 1.0}}, 1, "model.label_smoothing"),
    ],
)
def test_rules(tmp_path: Path, sections: dict[str, Any], processes: int, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_recipe(recipe_of(tmp_path, **sections), processes)
    assert message in str(error.value)


def test_replicas_may_write(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, data={"generate": "always"}, parallel={"shard": "optimizer"})
    assert check_recipe(recipe, 2).layout.data == 2 == check_evaluation(recipe, 2).layout.data


def test_only_models_that_read_and_write(tmp_path: Path) -> None:
    values = recipe_of(tmp_path).to_dict()
    values["model"] = {"family": "gpt2", "vocab": 320}
    with pytest.raises(ConfigError, match="gpt2 is made for language_modeling"):
        check_recipe(recipe_from_dict(values), 1)


def test_tokenizers_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="model.vocab = 100"):
        prepare_data(recipe_of(tmp_path, model={"vocab": 100}))
    with pytest.raises(ConfigError, match="model.decoder_start = 319") as error:
        prepare_data(recipe_of(tmp_path, model={"decoder_start": 319}))
    assert r"--model.decoder-start 0 ([PAD])" in str(error.value)
    without = tmp_path / "vocab.txt"
    recipe = recipe_of(tmp_path)
    without.write_text(without.read_text().replace("[PAD]", "[WAS]"))
    with pytest.raises(ConfigError, match="the tokenizer has no pad token"):
        prepare_data(recipe)
    monkeypatch.setattr(sequence_to_sequence, "find_spec", lambda name: None)
    with pytest.raises(MachineError, match="needs the package sacrebleu"):
        prepare_data(recipe_of(tmp_path, data={"generate": "always"}))


def test_names_of_the_task() -> None:
    assert task_called("translation") == task_called("summarization") == "sequence_to_sequence"


def test_when_evaluations_write(tmp_path: Path) -> None:
    expected = {"after_training": (False, True), "always": (True, True), "never": (False, False)}
    for generate, wanted in expected.items():
        task = build_task(recipe_of(tmp_path, data={"generate": generate}))
        assert tuple(task.writing(during) is not None for during in (True, False)) == wanted


def test_what_is_written_is_measured_alike_by_any_number_of_processes(tmp_path: Path) -> None:
    task = build_task(recipe_of(tmp_path, data={"generate": "always", "max_new_tokens": 7}))
    writing = task.writing(during_training=True)
    assert writing is not None
    answers = {tuple(writing.source(index)): index for index in range(3)}
    tokenizer: Any = prepare_data(recipe_of(tmp_path)).tokenizer

    def write(sources: Sequence[Sequence[int]], options: GenerationOptions) -> list[list[int]]:
        """Stands in for a model that is right of all but the second."""
        assert options.greedy and options.max_new_tokens == 7 and options.stop_token == tokenizer.end_of_text_id
        known = [answers[tuple(source)] for source in sources]
        return [tokenizer.encode("the berlin" if index == 1 else PAIRS[index][1]) for index in known]

    for processes in (1, 2, 3):
        found = Judgement()
        for rank in range(processes):
            mine = [index for part in evaluation_batches(3, processes, rank, 2) for index in part]
            found.add(judge_written(writing, mine, TextScorer("en"), lambda: nullcontext(write)))
        metrics = text_metrics(found.sums)
        assert metrics["exact_match"] == pytest.approx(200 / 3) and found.sums["written"] == 3
        assert metrics["rouge_l"] == pytest.approx(100 * (1 + 0.5 + 1) / 3)


@pytest.fixture(scope="module")
def reverse_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped recipe, trained."""
    folder = tmp_path_factory.mktemp("reverse")
    overrides = {
        "data.cache": str(folder / "cache"),
        "evaluate.every": None,
        "checkpoint.every": None,
        "batch.micro": 64,
    }
    Trainer(recipe="t5/reverse", overrides=overrides, run_dir=folder / "run").train()
    return folder / "run"


def evaluate(run: Path, **data: Any) -> dict[str, Any]:
    return Trainer(recipe=run / "config.yaml", overrides={"data": data}).evaluate(str(run))


def test_learns_to_write_words_backwards(reverse_run: Path) -> None:
    found = evaluate(reverse_run, generate="never")
    assert found["token_accuracy"] > 99.5 and found["loss"] < 0.05 and "bleu" not in found


def test_writes_words_backwards(reverse_run: Path) -> None:
    """From training to text, by what a user calls."""
    found = evaluate(reverse_run)
    assert found["exact_match"] >= 99 and found["bleu"] > 99 and found["rouge_l"] > 99
    (answer,) = Trainer(recipe=reverse_run / "config.yaml").predict(str(reverse_run), ["lemon house apple"])
    assert answer == {"text": "apple house lemon"}
