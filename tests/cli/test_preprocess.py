"""`paddock preprocess` as users type it, in the words of the systems they come from."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.embedded import embedded_documents
from paddock.data.tokenizers.load import load_tokenizer_folder, train_tokenizer
from paddock.testing.commands import paddock
from paddock.testing.samples.texts import sample_texts, write_lines

ONEFLOW = (
    "--input my-corpus.json --output-prefix my-gpt --vocab gpt2-vocab.json --dataset-impl mmap "
    "--tokenizer-type GPT2BPETokenizer --merge-file gpt2-merges.txt --append-eod"
)
FILES = "--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --tokenizer-type GPT2BPETokenizer"


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the files that the commands name."""
    monkeypatch.chdir(tmp_path)
    train_tokenizer(embedded_documents()[:20], 600).save(tmp_path)
    engine = load_tokenizer_folder(tmp_path).engine  # type: ignore[union-attr]
    engine.model.save(".", "gpt2")
    write_lines(tmp_path / "my-corpus.json", sample_texts(100))
    return tmp_path


def tokens(prefix: str) -> list[list[int]]:
    corpus = IndexedTokens(prefix)
    return [corpus[index].tolist() for index in range(len(corpus))]


def expected(end: bool = True) -> list[list[int]]:
    tokenizer = load_tokenizer_folder(Path())
    assert tokenizer is not None
    return [[*tokenizer.encode(text), *([tokenizer.end_of_text_id] * end)] for text in sample_texts(100)]


def test_the_command_of_oneflow_gpt(workplace: Path) -> None:
    done = paddock("preprocess", *ONEFLOW.split())
    assert done.returncode == 0, done.stderr
    assert tokens("my-gpt_text_document") == expected()
    total = sum(map(len, expected()))
    assert done.stdout == f"my-gpt_text_document  documents 100  sequences 100  tokens {total}  dtype uint16\n"
    assert "documents: 100" in done.stderr and "next: paddock data inspect my-gpt_text_document" in done.stderr
    files = {f"my-gpt_text_document.{end}" for end in ("bin", "idx", "tokenizer")}
    assert {path.name for path in workplace.glob("my-gpt*")} == files


@pytest.mark.parametrize(
    "flags",
    [
        "--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --tokenizer-type GPT2BPETokenizer",
        "--vocab gpt2-vocab.json --merges-file gpt2-merges.txt --tokenizer-name GPT2Tokenizer",
        "--vocab_file gpt2-vocab.json --merges_file gpt2-merges.txt --tokenizer_name GPT2Tokenizer",
        "--vocab=gpt2-vocab.json --merge-file=gpt2-merges.txt --tokenizer-type=GPT2BPETokenizer",
        "--tokenizer-model tokenizer.json --tokenizer-type HuggingFaceTokenizer",
        "--tokenizer-model . --tokenizer-type HuggingFaceTokenizer --json-key text",
        f"{FILES} --json-keys text --log-interval 10",
        f"{FILES} --on-error skip --end-of-text <|endoftext|>",
    ],
)
def test_every_spelling(workplace: Path, flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"preprocess --input my-corpus.json --output-prefix out --append_eod --workers 1 --json {flags}"
    assert run(command.split()) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["corpora"][0]["prefix"] == "out_text_document" and result["counts"]["documents"] == 100
    assert tokens("out_text_document") == expected()


def test_many_inputs(workplace: Path) -> None:
    lines = Path("my-corpus.json").read_text().splitlines(keepends=True)
    for name, part in (("a", lines[:30]), ("b", lines[30:60]), ("c", lines[60:])):
        Path(f"{name}.jsonl").write_text("".join(part))
    for number, inputs in enumerate((["a.jsonl", "b.jsonl", "c.jsonl"], ["[ab].jsonl", "c.jsonl"], ["?.jsonl"])):
        flags = ["--output-prefix", f"out{number}", "--workers", "1", *FILES.split()]
        assert run(["preprocess", "--input", *inputs, *flags]) == 0
        assert tokens(f"out{number}_text_document") == expected(end=False)


def test_standard_input(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"preprocess --input - --output-prefix out --workers 1 {FILES}".split()
    with open("my-corpus.json", "rb") as stream:
        done = subprocess.run([sys.executable, "-m", "paddock", *command], stdin=stream, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cannot be continued" in done.stderr
    assert tokens("out_text_document") == expected(end=False)


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ("--dataset-impl lazy", 2, "--dataset-impl = lazy(.|\n)*mmap is the form that is written"),
        ("--dataset-impl cached", 2, "--dataset-impl = cached(.|\n)*mmap is the form that is written"),
        ("--workers 0", 2, "--workers = 0"),
        ("--log-interval 0", 2, "--log-interval = 0"),
        ("--extra-ids 3", 2, "--extra-ids = 3"),
        ("--extra-ids -3", 2, "--extra-ids -3"),
        ("--keep-newlines", 2, "--keep-newlines would be ignored"),
        ("--json-keys title", 4, r'my-corpus\.json, line 1: it has no key "title" \(it has: text, other\)'),
        ("--json-keys other", 4, 'line 1: "other" is a number, not a string'),
        ("--input nowhere.json", 4, "cannot read --input nowhere.json"),
        ("--vocab nowhere.json", 4, "no tokenizer file nowhere.json"),
        ("--end-of-text <nothing>", 2, "has no such token"),
        ("--output-prefix my-corpus.json/out", 3, "cannot write"),
    ],
)
def test_what_cannot_work(
    workplace: Path, flags: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["preprocess", *ONEFLOW.split(), "--workers", "1", *flags.split()]
    assert run(command) == code
    captured = capsys.readouterr()
    assert re.search(f"error: (.|\n)*{message}", captured.err) and captured.out == ""
    assert not list(workplace.glob("my-gpt*"))


def test_a_misspelt_flag_and_a_missing_one(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in ("--append-eof", "--tokenizer-type GPT3Tokenizer"):
        assert run(["preprocess", *ONEFLOW.split(), *flags.split()]) == 2
    assert run(["preprocess", "--input", "my-corpus.json"]) == 2
    assert "--output-prefix" in capsys.readouterr().err


def test_the_help_page_needs_no_torch_and_has_every_spelling() -> None:
    code = (
        "import sys; from paddock.cli.main import run\ntry: run(['preprocess', '--help'])\n"
        "finally: print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert shown.endswith("False False\n")
    for (
        spelling
    ) in """--input --output-prefix --json-keys --json-key --tokenizer-type --tokenizer-name --vocab-file --vocab
        --merge-file --merges-file --tokenizer-model --append-eod --split-sentences --keep-newlines --do-lower-case
        --do-chinese-wwm --extra-ids --dataset-impl --workers --log-interval GPT2BPETokenizer BertWordPieceLowerCase
        BertWordPieceCase SentencePieceTokenizer HuggingFaceTokenizer GPT2Tokenizer BertTokenizer T5Tokenizer
        RobertaTokenizer""".split():
        assert re.search(rf"(?<![\w-]){re.escape(spelling)}(?![\w-])", shown), spelling


def test_lines_of_progress(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(Path("large.json"), sample_texts(100) * 200)
    command = f"preprocess --input large.json --output-prefix out --workers 1 --log-interval 1000 {FILES}"
    assert run(command.split()) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "documents/s" in line]
    assert len(lines) >= 2
    assert re.fullmatch(
        r" *\d+%  [\d,]+ documents  [\d.k]+ documents/s  [\d.]+ MB/s  [\d.kM]+ tokens(  eta \w+)?", lines[0]
    )


INTERRUPTED = """
import os, signal, sys
from paddock.cli.main import run
from paddock.jobs.preprocess import Display

def interrupt(display, snapshot):
    os.killpg(0, signal.SIGINT)  # as a terminal does: to everybody

Display.advance = interrupt
sys.exit(run(sys.argv[1:]))
"""
"""A command that meets with Ctrl-C as soon as it has written something."""


def test_stopping_and_going_on(workplace: Path) -> None:
    write_lines(Path("large.json"), sample_texts(100) * 400)
    command = ["preprocess", "--input", "large.json", "--output-prefix", "out", "--log-interval", "1", *FILES.split()]
    program = [sys.executable, "-c", INTERRUPTED, *command, "--workers", "2"]
    stopped = subprocess.run(program, capture_output=True, text=True, start_new_session=True)
    assert stopped.returncode == 130, stopped.stderr
    assert "the same command continues" in stopped.stderr and "Traceback" not in stopped.stderr
    assert Path("out.progress.json").is_file() and not Path("out_text_document.idx").exists()
    done = paddock(*command, "--workers", "1")
    assert done.returncode == 0 and "continues: at line" in done.stderr
    assert (
        run(["preprocess", "--input", "large.json", "--output-prefix", "whole", "--workers", "1", *FILES.split()]) == 0
    )
    for suffix in (".bin", ".idx"):
        assert Path(f"out_text_document{suffix}").read_bytes() == Path(f"whole_text_document{suffix}").read_bytes()


def test_stopping_while_nothing_comes_in(workplace: Path) -> None:
    command = [sys.executable, "-m", "paddock", "preprocess", "--input", "-", "--output-prefix", "out", *FILES.split()]
    process = subprocess.Popen([*command, "--workers", "1"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    while "note: a stream" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    time.sleep(0.3)  # most likely it reads by now; if not, it stops all the same
    process.send_signal(signal.SIGTERM)
    said += process.stderr.read()
    assert process.wait() == 130 and "begins again" in said
    assert not list(workplace.glob("out*"))


def test_a_live_line_on_a_terminal(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from paddock.jobs import preprocess as job

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=150)
    monkeypatch.setattr(job, "stderr_console", lambda: console)
    write_lines(Path("large.json"), sample_texts(100) * 200)
    assert run(f"preprocess --input large.json --output-prefix out --workers 1 {FILES}".split()) == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "━" in shown and "MB/s" in shown and "tokens" in shown and "%" in shown
