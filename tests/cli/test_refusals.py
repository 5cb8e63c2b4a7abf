"""What is wrong with a command line: one style for all of it, and the nearest thing that there is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.tiny import TINY

DOING = {"starting", "preparing data", "converting", "loading the model"}
"""What a command may have said before."""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert run(list(arguments)) == code
    told = capsys.readouterr()
    before, found, error = told.err.partition("error: ")
    assert told.out == "" and found and "│" not in error and set(before.splitlines()) <= DOING
    return found + error


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        (["train", "gpt2/tiny", "--stpes", "20"], "there is no flag --stpes", '"--steps"'),
        (["train", "gpt2/tiny", "--num-layer", "20"], "there is no flag --num-layer", '"--num-layers"'),
        (["train", "gpt2/tiny", "--train.stpes", "20"], "--train.stpes", '"--train.steps"'),
        (["train", "gpt2/tiny", "--heads", "4"], "there is no flag --heads", "--model.heads"),
        (["train", "gpt2/tiny", "--train.lr", "1"], "there is no flag --train.lr", "did you mean --optimizer.lr?"),
        (["train", "gpt2/tiny", "--train.precision", "float16"], "no flag --train.precision", "--precision.compute"),
        (["train", "gpt2/tiny", "--nproc", "4"], "there is no flag --nproc", "--nproc-per-node"),
        (["train", "gpt2/tiny", "--batch", "4"], "there is no flag --batch", "--help"),
        (["train", "gpt2/tiny", "--data", "my.txt"], "there is no flag --data", "--data.path my.txt"),
        (["train", "gpt2/tiny", "--data=my.txt"], "there is no flag --data", "--data.path my.txt"),
        (["train", "resnet/tiny-synthetic", "--arhc", "resnet18"], "there is no flag --arhc", '"--arch"'),
        (["train", "gpt2/tiny", "--steps"], "--steps needs a value", "--train.steps"),
        (["train", "gpt2/tiny", "--train.steps"], "--train.steps needs a value", "--help"),
        (["train", "gpt2/tiny", "--run-dir", "--dry-run"], "--run-dir needs a value", "--help"),
        (["train", "gpt2/tiny", "--steps", "2", "again"], '"again" is one word too many', "--help"),
        (["train", "gpt2/tiny", "--dry-run", "--world", "two"], "--world = two", "a whole number"),
        (["train", "gpt2/tiny", "-x", "2"], "there is no flag -x", "--help"),
        (["convert", "a", "b", "--to", "hugingface"], "--to = hugingface", '"huggingface"'),
        (["convert", "a"], "paddock convert needs TO", "--help"),
        (["convert", "a", "b", "c"], '"c" is one word too many', "FROM and TO"),
        (["generate", "m", "--seed", "x"], "--seed = x", "a whole number"),
        (["generate", "m", "--temperature", "hot"], "--temperature = hot", "a number"),
        (["data", "merge", "a", "b"], "paddock data merge needs --output-prefix", "--help"),
        (["preprocess", "--input", "x", "--output-prefix", "y"], "paddock preprocess needs --tokenizer-type", "--help"),
        (["preprocess", "--inptu", "x"], "there is no flag --inptu", '"--input"'),
        (["doctor", "--jsn"], "there is no flag --jsn", '"--json"'),
        (["zoo", "list", "--taks", "x"], "there is no flag --taks", '"--task"'),
        (["completion", "tcsh"], 'paddock completion knows no "tcsh"', "bash, zsh, fish"),
        (["train", "gpt2/tiny", "--steps", "abc"], "train.steps = abc", "it should be a whole number\n"),
        (["train", "gpt2/tiny", "--model.activation", "geluu"], "model.activation = geluu", "one of gelu_tanh, gelu"),
        (["convert-config", "nowhere.py"], "there is no config nowhere.py", "MindFormers or a Python config of LiBai"),
        (["generate", "gpt2/tiny", "--prompt", "x"], "gpt2/tiny is a recipe", "first: paddock train gpt2/tiny"),
        (["train", *TINY, "--device", "gpu"], "device = gpu", 'did you mean "cuda"?'),
        (["train", *TINY, "--device", "Ascend"], "device = Ascend", 'did you mean "npu"?'),
    ],
)
def test_what_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], what: str, fix: str) -> None:
    told = refused(capsys, *arguments)
    first, _, rest = told.partition("\n")
    assert what in first and fix in rest


def test_text_beside_data_is_named_with_its_source(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.txt").write_text("words")
    assert "set --data.path my.txt --data.source text" in refused(capsys, "train", "gpt2/tiny", "--data", "my.txt")


def test_what_tyro_still_refuses_is_in_our_words(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "generate", "m", "--parallel.stages", "a", "b")
    assert "--parallel.stages" in told and "fix: see `paddock generate --help`" in told


def test_a_value_that_looks_like_no_flag_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing to wait for" not in refused(capsys, "train", *TINY, "--optimizer.lr", "-1")


def test_runs_are_found_by_a_name_that_is_nearly_theirs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained_run: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tour").symlink_to(trained_run)
    for arguments, code in (
        (["evaluate", "runs/tuor"], 2),
        (["generate", "runs/tuor", "--prompt", "x"], 4),
        (["convert", "runs/tuor", "out"], 4),
        (["resume", "runs/tuor"], 2),
        (["train", *TINY, "--checkpoint.load", "runs/tuor"], 4),
    ):
        assert 'did you mean "runs/tour"?' in refused(capsys, *arguments, code=code), arguments


def test_names_that_are_far_away_are_not_meant(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though they begin with the same folder, or end in the same letters."""
    monkeypatch.chdir(tmp_path)
    for name in ("tour", "t80"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    (tmp_path / "meg.py").touch()
    for arguments, code in (
        (["evaluate", "runs/none"], 2),
        (["generate", "runs/none", "--prompt", "x"], 4),
        (["resume", "runs/none"], 2),
        (["runs", "show", "runs/none"], 2),
        (["convert-config", "x.py"], 2),
    ):
        assert "did you mean" not in refused(capsys, *arguments, code=code), arguments


def test_a_rank_table_that_is_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = refused(capsys, "ranktable", "check", "nofile", code=4)
    assert "there is no rank table nofile" in told and "every value is a text" not in told
    Path("table.json").touch()
    assert 'did you mean "table.json"?' in refused(capsys, "ranktable", "check", "tabel.json", code=4)


TAKEN_FOR = "why: by its name it is JSON lines"
WORDPIECE = ["--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", "vocab.txt"]


def test_text_under_another_key_and_tables_of_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    Path("key.jsonl").write_text('{"number": 3, "txt": "a a"}\n')
    Path("own.csv").write_text("number,txt\n3,a a\n")
    Path("own.dat").write_text("number,txt\n3,a a\n")
    train = ["train", *TINY, "--run-dir", "run", "--data.path"]
    as_text = [*train, "key.jsonl", "--data.source", "text"]
    preprocess = ["preprocess", *WORDPIECE, "--output-prefix", "out", "--input"]
    assert "fix: name the key that has the text: --data.json-key txt" in refused(capsys, *as_text, code=4)
    for file, said in (("key.jsonl", "fix: name the key that has the text: --json-keys txt"), ("own.dat", TAKEN_FOR)):
        assert run([*preprocess, file]) == 4
        assert said in capsys.readouterr().err
    for arguments, code in (
        ([*train, "own.csv"], 2),
        ([*train, "own.csv", "--data.source", "text"], 2),
        ([*preprocess, "own.csv"], 4),
    ):
        told = refused(capsys, *arguments, code=code)
        assert "own.csv" in told and "plain text (.txt), JSON lines (.jsonl) and Parquet tables (.parquet)" in told
    program = told.partition('python -c "')[2].partition('"')[0]
    given = Path("own.csv").read_bytes()
    made = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, check=True)
    assert json.loads(made.stdout) == {"number": "3", "txt": "a a"}


def test_span_corruption_says_what_lacks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["train", "t5/tiny", "--tokenizer.extra-ids", "0", "--steps", "1", "--run-dir", str(tmp_path / "run")]
    told = refused(capsys, *words)
    assert "0 sentinels, which are too few" in told and "--tokenizer.extra-ids" in told
    told = refused(capsys, "data", "inspect", "nothing", "--task", "span_corruption", code=4)
    assert "there is no nothing.idx" in told


def test_training_a_run_offers_to_resume_it(capsys: pytest.CaptureFixture[str], trained_run: Path) -> None:
    told = refused(capsys, "train", str(trained_run))
    assert f"{trained_run} is a run, not a recipe" in told
    assert f"paddock resume {trained_run}" in told and f"{trained_run}/config.yaml" in told


@pytest.mark.parametrize("flags", [["--model.hidden", "16"], ["--model.layers", "3", "--model.context", "64"]])
def test_a_size_that_differs_from_the_checkpoint_is_named(
    capsys: pytest.CaptureFixture[str], trained_run: Path, tmp_path: Path, flags: list[str]
) -> None:
    told = {"hidden": (32, 16), "layers": (2, 3), "context": (32, 64)}
    for arguments in (
        ["resume", str(trained_run), "--steps", "8", *flags],
        ["train", *TINY, "--checkpoint.load", str(trained_run), "--run-dir", str(tmp_path / "run"), *flags],
    ):
        assert run(arguments) == 2
        error = capsys.readouterr().err.partition("error: ")[2]
        for flag in flags[::2]:
            name = flag.removeprefix("--model.")
            there, here = told[name]
            assert f"{name}: {there} in the checkpoint, {here} here" in error and f"--model.{name} {there}" in error
        assert "blocks" not in error and len(error) < 600


def test_errors_as_json(capsys: pytest.CaptureFixture[str], trained_run: Path) -> None:
    for arguments, code in (
        (["train", "gpt2/tiny", "--stpes", "20", "--json"], 2),
        (["evaluate", "runs/none", "--json"], 2),
        (["convert", "nowhere", "out", "--json"], 4),
        (["trian", "--json"], 2),
    ):
        assert run(arguments) == code
        told = capsys.readouterr()
        (line,) = told.out.splitlines()
        error = json.loads(line)
        assert set(error) == {"error", "why", "fix", "code"} and error["code"] == code
        assert f"error: {error['error']}\n" in told.err
