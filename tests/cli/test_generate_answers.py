"""`paddock generate` with a model that reads a text and writes another: what transformers' own pipeline would write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from paddock.checkpoint.foreign.huggingface import save_folder
from paddock.cli.main import run
from paddock.data.config import TokenizerConfig
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer
from paddock.models.layers.initialization import initialize
from paddock.models.t5.config import T5Config
from paddock.models.t5.model import T5
from paddock.testing.samples.texts import train_sentencepiece

TEXTS = ["bind names to <extra_id_0> in a function", "the class", "a much longer text, of several words; and more"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = train_sentencepiece(tmp_path_factory.mktemp("pieces"))
    found = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(path)))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = T5Config(vocab=tokenizer.vocab_size, layers=2, hidden=32, heads=4, head_size=8, feed_forward=32)
    model = T5(config).eval()
    initialize(model, 5)
    place = tmp_path_factory.mktemp("model") / "hf"
    save_folder(model.state_dict(), config, place, eos_token_id=tokenizer.end_of_text_id, add_files=tokenizer.save)
    return place


def theirs(folder: Path, tokenizer: Tokenizer, text: str, beams: int) -> list[int]:
    """The tokens that transformers writes, without the start and what is at the end or behind it."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokens = torch.tensor([[*tokenizer.encode(text), tokenizer.end_of_text_id]])
    found = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=9, num_beams=beams, do_sample=False
    )[0].tolist()[1:]
    return found[: found.index(tokenizer.end_of_text_id)] if tokenizer.end_of_text_id in found else found


@pytest.mark.parametrize("beams", [1, 3])
def test_answers_are_those_of_transformers(
    folder: Path, tokenizer: Tokenizer, beams: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", str(folder), "--prompt", *TEXTS, "--max-new-tokens", "9", "--json"]
    assert run([*words, "--num-beams", str(beams)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["prompt"] for one in found] == TEXTS and not any(one["continues"] for one in found)
    expected = [theirs(folder, tokenizer, text, beams) for text in TEXTS]
    assert [one["text"] for one in found] == [tokenizer.decode_named(tokens) for tokens in expected]
    assert any("<extra_id_" in one["text"] for one in found), "gaps are named in what is written, too"


def test_a_text_may_be_longer_than_any_distance_that_is_told_apart(
    folder: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A T5 has no positions that could come to an end; the guide on generation says so."""
    text = "bind names " * 60
    assert len(tokenizer.encode(text)) > T5Config.model_fields["max_distance"].default
    assert run(["generate", str(folder), "--prompt", text, "--max-new-tokens", "9", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["text"] == tokenizer.decode_named(theirs(folder, tokenizer, text, 1))


def test_only_the_answer_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(folder), "--prompt", TEXTS[0], "--max-new-tokens", "9"]
    assert run([*words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert run(words) == 0
    assert capsys.readouterr().out == found["text"] + "\n"


def test_what_cannot_be_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", str(folder), "--prompt", "x"]
    for flags, why in (
        ("--num-beams 100000", "num_beams = 100000"),
        ("--num-beams 2 --temperature 0.5", "temperature = 0.5"),
        ("--num-beams 2 --num-return-sequences 3", "num_return_sequences = 3"),
        ("--length-penalty 2", "length_penalty = 2.0"),
        ("--top-k 3", "top_k = 3"),
    ):
        assert run([*words, *flags.split()]) == 2
        assert why in capsys.readouterr().err
