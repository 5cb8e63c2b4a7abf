"""From pretraining to a task, and out to transformers: what goes along and what begins anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from paddock import Trainer
from paddock.cli.main import run
from paddock.config.load import save_recipe
from paddock.testing.layouts import small_bert
from paddock.testing.tiny import losses

SHORT: dict[str, Any] = {
    "model": {"layers": 2, "vocab": 301},
    "train": {"steps": 2},
    "log": {"every": 1},
    "batch": {"micro": 4, "global": 4},
}


def write_recipe(folder: Path, task: str, **sections: Any) -> str:
    path = folder / f"{task}.yaml"
    save_recipe(small_bert(task, str(folder / "cache"), **{**SHORT, **sections}), path)
    return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes for every task, and a short run of masked-language pretraining."""
    folder = tmp_path_factory.mktemp("finetuning")
    recipe = write_recipe(folder, "masked_language_modeling")
    write_recipe(folder, "question_answering")
    write_recipe(folder, "sequence_classification")
    assert run(["train", recipe, "--run-dir", str(folder / "pretrained")]) == 0
    return folder


@pytest.mark.parametrize("flags", [[], ["--checkpoint.weights-only", "true"]])
@pytest.mark.parametrize("task", ["question_answering", "sequence_classification"])
def test_a_run_gives_its_encoder_to_another_task(
    place: Path, tmp_path: Path, task: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", str(place / f"{task}.yaml"), "--checkpoint.load", str(place / "pretrained")]
    assert run([*command, *flags, "--run-dir", str(tmp_path / "run")]) == 0
    card = " ".join(capsys.readouterr().err.split())
    begun, left_out = card.split("begun from initial values: ")[1].split("; in it and left out: ")
    assert begun.startswith("head.") and "head.output.weight" in begun and "head.decoder.bias" in left_out
    assert len(losses(tmp_path / "run")) == 2, "the steps are those of this run"
    go_on = ["--run-dir", str(tmp_path / "run"), "--checkpoint.load", "auto", "--steps", "3"]
    assert run(["train", str(tmp_path / "run" / "config.yaml"), *go_on]) == 0
    assert len(losses(tmp_path / "run")) == 3, "and it goes on with its own head"


def test_what_does_not_fit_is_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrained, answers = str(place / "pretrained"), str(place / "question_answering.yaml")
    load = ["--checkpoint.load", pretrained]
    new = ["--run-dir", str(tmp_path / "run")]
    cases = [
        (["train", answers, *load, *new, "--model.layers", "3"], 2, "layers: 2 in the checkpoint, 3 here"),
        (["train", answers, *load, *new, "--model.heads", "2"], 2, "were trained with 4"),
        (["evaluate", answers, *load], 4, "has no head for question_answering"),
        (["train", answers, "--checkpoint.load", "auto", "--run-dir", pretrained], 4, "has no head for question_"),
        (["train", answers, "--checkpoint.load", str(tmp_path / "nowhere"), *new], 4, "there is no "),
    ]
    before = (place / "pretrained" / "config.yaml").read_text()
    for command, code, message in cases:
        assert run(command) == code, command
        assert message in capsys.readouterr().err, command
    assert not (tmp_path / "run").exists() and (place / "pretrained" / "config.yaml").read_text() == before


def test_the_trainer_finetunes_a_run(place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(recipe=place / "question_answering.yaml", run_dir=tmp_path / "run")
    result = trainer.train(resume_or_finetune_from_checkpoint=str(place / "pretrained"), do_finetune=True)
    assert result["step"] == 2 and "begun from initial values: head.output" in capfd.readouterr().err
    other = Trainer(recipe=place / "question_answering.yaml")
    with pytest.raises(ValueError, match="has no head for question_answering"):
        other.evaluate(eval_checkpoint=str(place / "pretrained"))


def test_classes_keep_their_names(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Out to transformers and back: the same labels with the same scores."""
    recipe, model, folder = str(place / "sequence_classification.yaml"), str(tmp_path / "run"), tmp_path / "theirs"
    assert run(["train", recipe, "--run-dir", model]) == 0
    assert run(["convert", model, str(folder)]) == 0
    theirs = transformers.BertForSequenceClassification.from_pretrained(folder)
    assert theirs.config.id2label == {0: "bad", 1: "good"} and theirs.config.label2id == {"bad": 0, "good": 1}
    assert run(["convert", str(folder), str(tmp_path / "back"), "--to", "paddock"]) == 0
    answers = []
    for source in (model, str(folder), str(tmp_path / "back")):
        capsys.readouterr()
        assert run(["predict", source, "The film was lovely.", "--top-k", "2", "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert answers[0] == answers[1] == answers[2]
    assert {answer["label"] for answer in answers[0][0]["answers"]} == {"bad", "good"}
    assert run(["convert", str(tmp_path / "back"), str(tmp_path / "again")]) == 0
    values, again = (json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "again"))
    assert values["id2label"] == again["id2label"] == {"0": "bad", "1": "good"}
    for name in ("id2label", "label2id"):
        values.pop(name)
    swapped = {"id2label": {"0": "good", "1": "bad"}, "label2id": {"good": 0, "bad": 1}}
    (folder / "config.json").write_text(json.dumps(values | swapped))
    load = ["--checkpoint.load", str(folder)]
    for command in (["evaluate", recipe, *load], ["train", recipe, *load, "--run-dir", str(tmp_path / "swapped")]):
        capsys.readouterr()
        assert run(command) == 4
        assert "class 0 is good there, and bad in the data" in capsys.readouterr().err
    (tmp_path / "run" / "classes.json").write_text('["bad", "good", "so"]')
    assert run(["convert", model, str(tmp_path / "wrong")]) == 4
    assert "names for 3 classes" in capsys.readouterr().err and not (tmp_path / "wrong").exists()


def test_evaluating_a_folder(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the folder has besides is said; a head that nobody trained is not evaluated."""
    answers = str(place / "question_answering.yaml")
    assert run(["train", answers, "--run-dir", str(tmp_path / "run")]) == 0
    assert run(["convert", str(tmp_path / "run"), str(tmp_path / "theirs")]) == 0
    theirs = transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "theirs")
    extra = {"bert.pooler.dense.weight": torch.zeros(32, 32), "bert.pooler.dense.bias": torch.zeros(32)}
    theirs.save_pretrained(tmp_path / "theirs", state_dict={**theirs.state_dict(), **extra})
    capsys.readouterr()
    files = ["--tokenizer.kind", "file", "--tokenizer.path", str(tmp_path / "theirs" / "tokenizer.json")]
    command = ["evaluate", answers, "--checkpoint.load", str(tmp_path / "theirs"), *files, "--json"]
    assert run(command) == 0
    captured = capsys.readouterr()
    assert "left out: bert.pooler.dense.bias, bert.pooler.dense.weight" in captured.err
    assert run(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(captured.out)["val.loss"] == json.loads(capsys.readouterr().out.splitlines()[-1])["val.loss"]
    theirs.bert.save_pretrained(tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (tmp_path / "theirs" / name).exists():
            (tmp_path / "bare" / name).write_bytes((tmp_path / "theirs" / name).read_bytes())
    assert run(["evaluate", answers, "--checkpoint.load", str(tmp_path / "bare"), *files]) == 4
    assert "it has no head for this task: train one" in capsys.readouterr().err
    assert run(["predict", str(tmp_path / "bare"), "x [MASK]"]) == 4
    assert "it has no head for this task: train one" in capsys.readouterr().err


def test_only_tokens_that_were_computed_count(place: Path, tmp_path: Path) -> None:
    """Rows as long as the longest of a micro-batch are less work, in tokens and in FLOPs."""
    recipe = str(place / "sequence_classification.yaml")
    work: dict[str, list[float]] = {}
    for padding in ("full", "longest"):
        folder = tmp_path / padding
        flags = ["--data.padding", padding, "--batch.micro", "1", "--steps", "6", "--run-dir", str(folder)]
        assert run(["train", recipe, *flags]) == 0
        ips, tokens, flops = (
            losses(folder, f"train.{name}") for name in ("ips", "tokens_per_second", "achieved_flops")
        )
        work[padding] = [value / ips[-1] for value in (tokens[-1], flops[-1])]
    assert work["full"][0] == pytest.approx(48)
    lengths = 4 * work["longest"][0]  # of one step's four rows, each a multiple of eight
    assert lengths == pytest.approx(8 * round(lengths / 8)) and 4 * 8 <= lengths < 4 * 48
    assert work["longest"][1] < work["full"][1] * work["longest"][0] / 48, "attention grows with the square"
