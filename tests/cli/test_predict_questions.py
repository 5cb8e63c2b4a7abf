"""Question answering from end to end: files, training, evaluation, prediction; on a model that learns in seconds."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.samples.texts import write_squad
from paddock.testing.tiny import losses

FLAGS = [
    *("bert/tiny", "--model.hidden", "64", "--model.init-std", "0.08", "--optimizer.lr", "4e-3", "--steps", "130"),
    *("--batch.micro", "32", "--batch.global", "32", "--data.source", "squad", "--checkpoint.every", "130"),
    *("--evaluate.every", "130", "--log.every", "10", "--train.epochs", "None"),
]
CONTEXT = "On Monday Anna Keller saw seven grey horses in Berlin. It was a quiet morning."


@pytest.fixture(scope="module")
def answering_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained on generated files in SQuAD's form."""
    folder = tmp_path_factory.mktemp("questions")
    write_squad(folder / "squad", train=2400, validation=301)
    flags = ["--data.path", str(folder / "squad"), "--run-dir", str(folder / "run")]
    assert run(["train", *FLAGS, *flags]) == 0
    return folder / "run"


def test_it_learns(answering_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert losses(answering_run, "val.exact_match")[-1] > 90
    assert run(["evaluate", str(answering_run), "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["val.exact_match"] == losses(answering_run, "val.exact_match")[-1]
    assert result["val.samples"] == 301
    exact, f1 = result["val.exact_match"], result["val.f1"]
    line = f"QA Metric = {{'QA Metric': {{'exact_match': {exact}, 'f1': {f1}}}}}"
    assert line in captured.err and line in (answering_run / "log.txt").read_text()
    # Batches of another size hold other rows together, and every question still counts once.
    assert run(["evaluate", str(answering_run), "--json", "--batch.micro", "7", "--batch.global", "7"]) == 0
    assert json.loads(capsys.readouterr().out)["val.exact_match"] == exact


def test_one_question(answering_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", str(answering_run), "--context", CONTEXT, "--question", "Where was it?"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert (answer["text"], answer["start"], answer["end"]) == ("Berlin", 47, 53) and 0.5 < answer["score"] <= 1
    assert run(["predict", str(answering_run), f"{CONTEXT} - Where was it?"]) == 0
    assert json.loads(capsys.readouterr().out) == [answer]
    questions = ["--question", "Who saw them?", "Where was it?", "--top-k", "3", "--json"]
    assert run(["predict", str(answering_run), "--context", CONTEXT, *questions]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["answers"][0]["text"] == "Anna Keller" and second["answers"][0] == answer
    assert len(second["answers"]) == 3 and second["id"] == "2"


def test_files(answering_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [{"id": "x1", "context": CONTEXT, "question": "Where was it?"}, f"{CONTEXT} - Who saw them?"]
    lines = tmp_path / "asked.jsonl"
    lines.write_text("".join(json.dumps(value) + "\n\n" for value in asked))
    command = ["predict", str(answering_run), "--input", str(lines), "--output"]
    assert run([*command, str(tmp_path / "answers.jsonl")]) == 0
    found = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [(one["id"], one["answers"][0]["text"]) for one in found] == [("x1", "Berlin"), ("3", "Anna Keller")]
    assert run([*command, str(tmp_path / "answers.csv"), "--top-k", "2"]) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "answers.csv").read_text())))
    assert [(row["id"], row["rank"]) for row in rows] == [("x1", "1"), ("x1", "2"), ("3", "1"), ("3", "2")]
    assert rows[0]["text"] == "Berlin" and rows[0]["start"] == "47"
    assert capsys.readouterr().out == ""
    plain = tmp_path / "asked.txt"
    plain.write_text(f"{CONTEXT} - Where was it?\n")
    assert run(["predict", str(answering_run), "--input", str(plain)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["text"] == "Berlin"


def test_bad_input(answering_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "asked.jsonl"
    lines.write_text('{"context": "x", "question": "y"}\n{"context": "x"\n')
    model, empty = str(answering_run), tmp_path / "empty.jsonl"
    empty.touch()
    cases: dict[tuple[str, ...], tuple[int, str]] = {
        (): (2, "there is nothing to predict"),
        ("--question", "x"): (2, "--question needs --context"),
        ("--context", "x"): (2, "--context needs --question"),
        ("--context", "x", "--question", " "): (4, "the question is empty"),
        ("--pair", "x"): (2, "--pair needs --text"),
        ("--text", "x"): (4, "--text has no context"),
        ("x y",): (4, "input 1 has no question"),
        ("--input", str(lines)): (4, f"{lines}:2 is not valid JSON"),
        ("--input", str(empty)): (4, "has no lines"),
        ("--input", str(tmp_path / "none")): (4, "cannot read --input"),
        ("x - y", "--output", str(tmp_path / "x.xml")): (2, ".jsonl or .csv"),
        ("x - y", "--output", str(tmp_path / "no" / "x.csv")): (4, "there is no folder"),
        ("x - y", "--top-k", "0"): (2, "--top-k 0"),
        ("x - y", "--batch", "0"): (2, "--batch 0"),
    }
    for flags, (code, message) in cases.items():
        assert run(["predict", model, *flags]) == code, flags
        captured = capsys.readouterr()
        assert message in captured.err and captured.out == "", flags
    assert run(["predict", str(tmp_path / "nowhere"), "x - y"]) == 4


def test_generated_text_is_no_prediction(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", str(trained_run), "x"]) == 2
    assert "paddock generate" in capsys.readouterr().err


def test_bad_data_leaves_no_run_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_squad(tmp_path / "squad", train=30, validation=30)
    file = folder / "train-v1.1.json"
    file.write_text(file.read_text().replace('"answer_start": ', '"answer_start": 1', 1))
    flags = [*FLAGS, "--data.path", str(folder), "--run-dir", str(tmp_path / "run")]
    assert run(["train", *flags]) == 4
    assert f"{file}: question 0-" in (message := capsys.readouterr().err) and "is not where it says" in message
    assert not (tmp_path / "run").exists()
    assert run(["train", *flags, "--data.on-error", "skip", "--steps", "1"]) == 0
    assert "note: 1 of 30 training questions cannot be used and are left out" in capsys.readouterr().err


def test_telling_texts_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "classes.yaml"
    recipe.write_text(
        "task: sequence_classification\n"
        "model: {family: bert, layers: 1, hidden: 32, heads: 2, vocab: 300, context: 32, dropout: 0.0, init_std: 0.1, "
        "head: sequence_classification}\n"
        "data: {source: synthetic, sequence_length: 32}\n"
        "tokenizer: {kind: trained}\n"
        "batch: {micro: 32}\n"
        "optimizer: {lr: 5.0e-3}\n"
        "train: {steps: 40}\n"
        "evaluate: {every: 40, batches: null}\n"
    )
    model = str(tmp_path / "run")
    assert run(["train", str(recipe), "--run-dir", model]) == 0
    assert losses(tmp_path / "run", "val.accuracy")[-1] > 95
    assert json.loads((tmp_path / "run" / "classes.json").read_text()) == ["bad", "good"]
    capsys.readouterr()
    assert run(["predict", model, "The film was lovely and warm.", "--text", "A dull game, and cold too."]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first[0]["label"] == "good" and second[0]["label"] == "bad" and first[0]["score"] > 0.5
