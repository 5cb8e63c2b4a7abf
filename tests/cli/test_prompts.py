"""Prompts of `paddock generate`: all are looked at before the model starts, and none can harm a terminal."""

from __future__ import annotations

import json
import sys
import tracemalloc
import weakref
from pathlib import Path

import pytest

import paddock
from paddock.cli.main import run
from paddock.data.tokenizers.load import train_tokenizer
from paddock.errors import DataError
from paddock.inference.generation import generate as writer
from paddock.inference.generation import text_generator as texts
from paddock.inference.generation.options import GenerationOptions
from paddock.jobs import generate as module
from paddock.jobs.generate import BLOCK, TextJob, continue_text
from paddock.models.gpt2.config import GPT2Config
from paddock.telemetry.screen.terminal import for_terminal
from paddock.testing.samples.texts import sample_texts

Captured = pytest.CaptureFixture[str]
FEW = ["--max-new-tokens", "4"]


@pytest.fixture
def exported(trained_run: Path, tmp_path: Path) -> Path:
    """A small GPT-2 in a Hugging Face folder."""
    assert run(["convert", str(trained_run), str(tmp_path / "model")]) == 0
    return tmp_path / "model"


@pytest.fixture
def starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run", lambda *_: pytest.fail("the model was started"))


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (b"word " * 40, 2, "the model's context is 32"),
        (b"A" * 29, 2, "--max-new-tokens"),
        (b"caf\xe9", 4, "is not text in UTF-8"),
    ],
)
@pytest.mark.usefixtures("starts_nothing")
def test_a_bad_line_far_down_is_found_before_the_model_starts(
    trained_run: Path, tmp_path: Path, capsys: Captured, line: bytes, code: int, said: str
) -> None:
    file, output = tmp_path / "prompts.txt", tmp_path / "out.jsonl"
    file.write_bytes(b"A\n" * 1499 + line + b"\n" + b"B\n" * 1000)
    assert run(["generate", str(trained_run), "--prompt-file", str(file), "--output", str(output), *FEW]) == code
    told = capsys.readouterr()
    assert f"error: --prompt-file {file}:1500 " in told.err and said in told.err
    assert told.out == "" and list(tmp_path.glob("out*")) == []


@pytest.mark.slow
def test_a_hundred_thousand_prompts_are_never_in_memory_together(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GPT2Config, "longest_sequence", lambda _: None)
    peaks = []
    for count in (1000, 10_000, 100_000):
        with open(tmp_path / "prompts.txt", "w") as stream:
            stream.writelines(f"prompt {number}: a cat in a garden, oil on canvas\n" for number in range(count))
        tracemalloc.start()
        assert (
            TextJob(str(trained_run), prompt_file=str(tmp_path / "prompts.txt")).keep_prompts(tmp_path / "k") == count
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]
    kept = [json.loads(line) for line in (tmp_path / "k").read_text().splitlines()]
    assert len(kept) == 100_000 and kept[-1].startswith("prompt 99999: ")


@pytest.mark.parametrize(("count", "block"), [(200, 16), pytest.param(100_000, BLOCK, marks=pytest.mark.slow)])
def test_requests_and_texts_of_one_block_are_alive_at_once(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, block: int
) -> None:
    """However many prompts there are."""
    most: dict[str, int] = {}
    for where, name in ((writer, "Request"), (texts, "Continuation")):
        monkeypatch.setattr(where, name, counted(getattr(where, name), most))
    monkeypatch.setattr(module, "BLOCK", block)
    (tmp_path / "prompts.txt").write_text("".join(f"{number}\n" for number in range(count)))
    job = TextJob(
        str(trained_run),
        GenerationOptions(max_new_tokens=1, temperature=0),
        prompt_file=str(tmp_path / "prompts.txt"),
        sequences=64,
    )
    written = continue_text(job, output=tmp_path / "out.jsonl")
    assert [one.prompt for one in written] == [str(number) for number in range(count)]
    assert most == {"Request": block, "Continuation": block}


def counted(kind: type, most: dict[str, int]) -> type:
    """A kind of object of which as many are alive at once as `most` then says."""
    alive = 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def begin(one: object, *arguments: object, **named: object) -> None:
        nonlocal alive
        kind.__init__(one, *arguments, **named)  # type: ignore[misc]
        weakref.finalize(one, gone)
        alive += 1
        most[kind.__name__] = max(most.get(kind.__name__, 0), alive)

    return type(kind.__name__, (kind,), {"__init__": begin})


@pytest.mark.usefixtures("starts_nothing")
def test_a_tokenizer_of_another_model(exported: Path, capsys: Captured) -> None:
    size = json.loads((exported / "config.json").read_text())["vocab_size"]
    train_tokenizer(sample_texts(300), size + 50).save(exported)
    assert run(["generate", str(exported), "--prompt", "A", *FEW]) == 4
    said = capsys.readouterr().err
    assert f"error: the tokenizer of {exported} has {size + 50} tokens\n" in said
    assert f"the model's vocabulary has {size}: " in said and "\n  fix: put the tokenizer there" in said
    with pytest.raises(DataError, match=f"has {size + 50} tokens"):
        paddock.load(str(exported)).generate("A")


def test_a_special_token_behind_the_others_harms_nobody_who_does_not_use_it(exported: Path, capsys: Captured) -> None:
    """As the files of some fine-tuned models have one for padding, of which the model knows nothing."""
    content = json.loads((exported / "tokenizer.json").read_text())
    size = json.loads((exported / "config.json").read_text())["vocab_size"]
    pad = {"id": size, "content": "[PAD]", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"].append(pad | flags)
    (exported / "tokenizer.json").write_text(json.dumps(content))
    assert run(["generate", str(exported), "--prompt", "A", *FEW]) == 0
    capsys.readouterr()
    assert run(["generate", str(exported), "--prompt", "A", "B[PAD]", *FEW]) == 4
    assert f"error: prompt 2 of 2 has the token {size}\n" in capsys.readouterr().err


def test_an_empty_prompt_begins_a_document(trained_run: Path, exported: Path, capsys: Captured) -> None:
    capsys.readouterr()
    texts = []
    for prompt in ("", "<|endoftext|>"):
        assert run(["generate", str(trained_run), "--prompt", prompt, "--temperature", "0", *FEW, "--json"]) == 0
        texts += json.loads(capsys.readouterr().out)
    assert texts[0]["prompt"] == "" and texts[0]["tokens"] and texts[0]["text"] == texts[1]["text"]
    for file in (exported / "tokenizer.json", exported / "tokenizer_config.json"):
        file.write_text(file.read_text().replace("<|endoftext|>", "<|nothing|>").replace("eos_token", "other"))
    assert run(["generate", str(exported), "--prompt", "", *FEW]) == 2
    said = capsys.readouterr().err
    assert "error: the prompt is empty\n" in said and "none that ends a text" in said and "fix: give some text" in said
    assert run(["generate", str(exported), "--prompt", "A", *FEW]) == 0


COLOURED = "a \x1b[31mred\x07 cat\x9b"


@pytest.mark.parametrize("extra", [[], ["--num-return-sequences", "2"], ["--json"]])
def test_control_characters_reach_the_model_and_no_terminal(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, extra: list[str]
) -> None:
    command = ["generate", str(trained_run), "--prompt", COLOURED, "--max-new-tokens", "1", *extra]
    assert run(command) == 0
    plain = capsys.readouterr().out
    if extra == ["--json"]:
        assert json.loads(plain)[0]["prompt"] == COLOURED
    else:
        assert plain.startswith(COLOURED)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert not set(shown) & set("\x1b\x07\x9b")
    if extra == ["--json"]:
        assert json.loads(shown)[0]["prompt"] == COLOURED
    else:
        assert shown.startswith(r"a \x1b[31mred\x07 cat\x9b")


def test_what_a_terminal_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "tab\tline\nback\rbell\x07del\x7f次é\x85"
    assert for_terminal(text) == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert for_terminal(text) == "tab\tline\nback\\x0dbell\\x07del\\x7f次é\\x85"
