"""`paddock evaluate` of language models: parts of a corpus, windows that slide, any text, LAMBADA; of runs and others'
weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.main import run
from paddock.testing.measuring import passages, write_language_model, write_passages
from paddock.testing.tiny import TINY

Capture = pytest.CaptureFixture[str]


def evaluate(capsys: Capture, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["evaluate", *arguments, "--batch.micro", "64", "--batch.global", "None", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("model") / "gpt2")


@pytest.fixture
def lambada(tmp_path: Path) -> str:
    return str(write_passages(tmp_path / "lambada.jsonl", passages(30)))


@pytest.mark.parametrize(
    ("part", "split"), [("train", ["0", "1", "2"]), ("validation", ["1", "1", "1"]), ("test", ["2", "1", "0"])]
)
def test_any_part_of_a_corpus(trained_run: Path, capsys: Capture, part: str, split: list[str]) -> None:
    """The same documents, made the validation part by other weights, give the same."""
    found = evaluate(capsys, str(trained_run), "--split", part, "--data.split", "1,1,1")
    same = evaluate(capsys, str(trained_run), "--data.split", *split)
    assert found["val.loss"] == same["val.loss"] and found["val.samples"] == same["val.samples"]
    assert found["measured_on"] == f"embedded, {part} part"


def test_the_weights_of_parts_keep_their_flag(trained_run: Path, capsys: Capture) -> None:
    assert run(["evaluate", str(trained_run), "--split", "1,0,0"]) == 2
    assert "data.split [1.0, 0.0, 0.0] leaves no validation part" in capsys.readouterr().err
    assert evaluate(capsys, str(trained_run), "--split=1,0,0", "--split", "train")["val.samples"] > 100


def test_a_corpus_in_windows_that_slide(trained_run: Path, capsys: Capture) -> None:
    found = evaluate(capsys, str(trained_run), "--split", "test", "--evaluate.stride", "31")
    plain = evaluate(capsys, str(trained_run), "--split", "test")
    assert found["val.loss"] == pytest.approx(plain["val.loss"], rel=0.01)  # nearly the same windows
    closer = evaluate(capsys, str(trained_run), "--split", "test", "--evaluate.stride", "8")
    assert closer["val.samples"] > 3 * plain["val.samples"]
    assert closer["measured_on"] == "embedded, test part, stride 8"


def test_any_text(trained_run: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "some.txt").write_text("A class is an object.\nIt has a name.\n" * 20, encoding="utf-8")
    text = str(tmp_path / "some.txt")
    found = evaluate(capsys, str(trained_run), "--text", text, "--evaluate.stride", "16")
    assert found["measured_on"] == f"{text}, stride 16" and found["val.perplexity"] > 1
    assert found["val.bits_per_byte"] == found["val.bits_per_character"]
    assert {"val.word_perplexity", "val.byte_perplexity"} <= set(found)
    assert run(["evaluate", str(trained_run), f"--text={text}"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("val.loss ") and "val.word_perplexity" in captured.out
    assert f"on {text}: " in captured.err


def test_lambada(trained_run: Path, lambada: str, tmp_path: Path, capsys: Capture) -> None:
    missed = tmp_path / "missed.jsonl"
    assert run(["evaluate", str(trained_run), "--lambada", lambada, "--missed", str(missed)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("val.lambada_accuracy ") and captured.out.endswith("(30 samples)\n")
    assert "validation results on LAMBADA | number correct: " in captured.err
    assert " | total examples: 3.0000E+01 | avg accuracy: " in captured.err
    assert f"on {lambada}, strict form: " in captured.err
    found = evaluate(capsys, str(trained_run), "--lambada", lambada)
    assert found["measured_on"] == f"{lambada}, strict form"
    rows = [json.loads(line) for line in missed.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 30 - round(30 * found["val.lambada_accuracy"]) and rows
    texts = [json.loads(line)["text"] for line in Path(lambada).read_text(encoding="utf-8").splitlines()]
    for row in rows:
        text = texts[row["line"] - 1]
        assert row["expected"] == " " + text.split()[-1] and row["said"] != row["expected"]
        assert text.removesuffix(row["expected"].strip()).rstrip().endswith(row["context"])
    last = evaluate(capsys, str(trained_run), "--lambada", lambada, "--data.form", "last_token")
    assert last["measured_on"] == f"{lambada}, last-token form"


def test_lambada_over_processes(folder: Path, lambada: str, capsys: Capture) -> None:
    alone = evaluate(capsys, str(folder), "--lambada", lambada)
    assert 0 < alone["val.lambada_accuracy"] < 1
    layout = ["--nproc-per-node", "2", "--parallel.pipeline", "2"]
    found = evaluate(capsys, str(folder), "--lambada", lambada, *layout)
    assert found["val.lambada_accuracy"] == alone["val.lambada_accuracy"]
    assert found["val.loss"] == pytest.approx(alone["val.loss"], rel=1e-5) and found["val.samples"] == 30


def test_other_peoples_weights_and_checkpoints(
    trained_run: Path, folder: Path, lambada: str, tmp_path: Path, capsys: Capture
) -> None:
    checkpoint = trained_run / "checkpoints" / "step-00000003"
    found = evaluate(capsys, str(checkpoint))
    assert found["checkpoint"] == str(checkpoint.resolve())
    assert found["val.loss"] != evaluate(capsys, str(trained_run))["val.loss"]
    assert evaluate(capsys, str(checkpoint), "--lambada", lambada)["val.samples"] == 30
    recipe = evaluate(capsys, *TINY, "--checkpoint.load", str(checkpoint), "--lambada", lambada)
    assert recipe["val.samples"] == 30
    converted = tmp_path / "converted"
    assert run(["convert", str(checkpoint), str(converted), "--to", "huggingface"]) == 0
    theirs = evaluate(capsys, str(converted), "--lambada", lambada)
    assert theirs["val.loss"] == pytest.approx(recipe["val.loss"], rel=1e-5)
    assert run(["evaluate", str(folder)]) == 2
    assert "data.path is not set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--split", "tset"], 2, "train"),
        (["--evaluate.stride", "32"], 2, "windows have 32 tokens"),
        (["--evaluate.stride", "0"], 2, "evaluate.stride"),
        (["--missed", "x.jsonl"], 2, "language_modeling does not say what was missed"),
        (["--text", "nowhere.txt"], 4, "cannot read nowhere.txt"),
        (["--text", "nowhere.txt", "--lambada", "x"], 2, "one thing at a time"),
        (["--text", "bytes.txt"], 4, "is not text in UTF-8"),
        (["--text", "short.txt"], 4, "there is nothing to measure in short.txt"),
        (["--text", "bytes.txt", "--split", "test"], 2, "has no such part"),
        (["--lambada", "blank.jsonl"], 4, "blank.jsonl:2 is blank"),
        (["--lambada", "cut.jsonl"], 4, "cut.jsonl:2 is not valid JSON"),
        (["--lambada", "blank.jsonl", "--evaluate.stride", "4"], 2, "has no windows that slide"),
        (["--lambada", "blank.jsonl", "--data.form", "strickt"], 2, "data.form"),
        (["--lambada", "blank.jsonl", "--data.sequence-length", "33"], 2, "only 32 positions"),
        (["--lambada", "blank.jsonl", "--missed", "nowhere/x.jsonl"], 4, "there is no folder"),
    ],
)
def test_what_cannot_be_measured(
    trained_run: Path,
    flags: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes.txt").write_bytes(b"a text \xff and more")
    (tmp_path / "short.txt").write_text("a")
    (tmp_path / "blank.jsonl").write_text('{"text": "one two"}\n\n{"text": "one two"}\n')
    (tmp_path / "cut.jsonl").write_text('{"text": "one two"}\n{"text": "one t')
    try:
        assert run(["evaluate", str(trained_run), *flags]) == code
    except SystemExit as exit_:
        assert exit_.code == code
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == "" and "Traceback" not in captured.err


def test_a_model_that_expects_no_next_token(tmp_path: Path, lambada: str, capsys: Capture) -> None:
    assert run(["evaluate", "bert/tiny", "--checkpoint.load", str(tmp_path), "--lambada", lambada]) == 2
    assert "does not say which token comes next" in capsys.readouterr().err


def test_weights_without_a_tokenizer(folder: Path, lambada: str, tmp_path: Path, capsys: Capture) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((folder / name).read_bytes())
    assert run(["evaluate", str(bare), "--lambada", lambada]) == 2
    assert "there is no tokenizer beside the weights" in capsys.readouterr().err
    tokenizer = ["--tokenizer.kind", "file", "--tokenizer.path", str(folder / "tokenizer.json")]
    found = evaluate(capsys, str(bare), "--lambada", lambada, *tokenizer)
    assert found["val.lambada_accuracy"] == evaluate(capsys, str(folder), "--lambada", lambada)["val.lambada_accuracy"]


def test_the_help_of_a_measure(folder: Path, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        run(["evaluate", str(folder), "--lambada", "x.jsonl", "--help"])
    page = capsys.readouterr().out
    assert "--data.form" in page and "{strict,last_token,harness}" in page and "--missed" in page


def test_nobody_trains_for_a_measure(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "recipe.yaml").write_text("task: lambada\nmodel: {family: gpt2}\ndata: {path: x.jsonl}\n")
    assert run(["train", str(tmp_path / "recipe.yaml")]) == 2
    captured = capsys.readouterr().err
    assert "task = lambada" in captured and "not trained for it" in captured
