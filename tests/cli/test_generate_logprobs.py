"""How likely the model found what it wrote, as the command and Python tell it: transformers' log-softmax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import paddock
from paddock.checkpoint.foreign.huggingface import save_folder
from paddock.cli.main import run
from paddock.data.tokenizers.interface import Tokenizer
from paddock.errors import ConfigError
from paddock.models.config import ModelConfig
from paddock.models.gpt2.config import GPT2Config
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model
from paddock.models.t5.config import T5Config

PROMPTS = ["The class", "A name is"]
HOW = ["--prompt", *PROMPTS, "--max-new-tokens", "6", "--seed", "3"]


@pytest.fixture(scope="module", params=["gpt2", "t5"])
def folder(request: pytest.FixtureRequest, trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights beside the tokenizer of a run."""
    tokenizer = paddock.load(str(trained_run)).tokenizer
    sizes = {"layers": 2, "hidden": 32, "heads": 4, "vocab": tokenizer.vocab_size}
    config: ModelConfig = GPT2Config(**sizes, context=40, init_std=0.6)
    if request.param == "t5":
        config = T5Config(**sizes, head_size=8, feed_forward=32, init_factor=3.0)
    model = build_model(config).eval()
    initialize(model, 5)
    place = tmp_path_factory.mktemp("random") / request.param
    save_folder(model.state_dict(), config, place, eos_token_id=tokenizer.end_of_text_id, add_files=tokenizer.save)
    return place


def theirs(folder: Path, tokenizer: Tokenizer, prompt: str, written: list[int]) -> torch.Tensor:
    """The log probabilities of every token in every place of what was written, [written, vocabulary]."""
    ids = tokenizer.encode(prompt)
    if folder.name == "gpt2":
        model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
        batch = {"input_ids": torch.tensor([[*ids, *written]])}
    else:
        model = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
        start = model.config.decoder_start_token_id
        batch = {
            "input_ids": torch.tensor([[*ids, tokenizer.end_of_text_id]]),
            "decoder_input_ids": torch.tensor([[start, *written]]),
        }
    with torch.no_grad():
        found: torch.Tensor = model(**batch).logits[0].log_softmax(dim=-1)
    return found[-len(written) - 1 : -1]


def check(folder: Path, records: list[dict[str, Any]], top: int) -> None:
    tokenizer = paddock.load(str(folder)).tokenizer
    assert [record["prompt"] for record in records] == PROMPTS
    for record in records:
        told = record["logprobs"]
        assert len(told) == record["tokens"] > 0
        expected = theirs(folder, tokenizer, record["prompt"], [one["token"] for one in told])
        for one, row in zip(told, expected, strict=True):
            assert one["logprob"] == pytest.approx(row[one["token"]].item(), abs=1e-3)
            assert [likely["logprob"] for likely in one["top"]] == pytest.approx(
                row.topk(top).values.tolist(), abs=1e-3
            )
            for likely in one["top"]:
                assert likely["logprob"] == pytest.approx(row[likely["token"]].item(), abs=1e-3)
        if folder.name == "gpt2" and "\ufffd" not in record["text"]:
            assert "".join(one["text"] for one in told) == record["text"]


@pytest.mark.parametrize(("top", "restriction"), [(0, []), (3, ["--temperature", "1.7", "--top-k", "9"])])
def test_the_command_tells(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], top: int, restriction: list[str]
) -> None:
    """The model's own probabilities, whatever is done to them before a token is drawn."""
    base = ["generate", str(folder), *HOW, *restriction]
    assert run([*base, "--logprobs", str(top), "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    check(folder, records, top)
    assert run([*base, "--logprobs", str(top), "--output", str(tmp_path / "texts.jsonl")]) == 0
    assert [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text(encoding="utf-8").splitlines()] == records
    capsys.readouterr()
    assert run([*base, "--json"]) == 0
    silent = json.loads(capsys.readouterr().out)
    assert silent == [{name: value for name, value in one.items() if name != "logprobs"} for one in records]


def test_the_text_form(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["generate", str(folder), *HOW]
    assert run([*base, "--logprobs", "2", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert run(base) == 0
    texts = capsys.readouterr().out
    assert run([*base, "--logprobs", "2"]) == 0
    found = capsys.readouterr().out
    for record in records:
        lines = [
            "  ".join(
                f"{one['logprob']:8.4f} {json.dumps(one['text'], ensure_ascii=False)}" for one in [told, *told["top"]]
            )
            for told in record["logprobs"]
        ]
        table = "\n".join(lines) + "\n"
        assert table in found
        found = found.replace(table, "", 1)
    assert found == texts


def test_python_tells(folder: Path) -> None:
    model = paddock.load(str(folder))
    settings: dict[str, Any] = {"max_new_tokens": 6, "seed": 3}
    found = model.generate(PROMPTS, logprobs=3, **settings)
    check(folder, [one.record() for one in found], 3)
    assert model.generate(PROMPTS, **settings) == [one.text for one in found]
    vocab = model.tokenizer.vocab_size
    for wrong in ({"logprobs": -1}, {"logprobs": vocab + 1}, {"logprobs": 2, "stream": True}):
        with pytest.raises(ConfigError, match="logprobs"):
            model.generate(PROMPTS, **wrong)  # type: ignore[call-overload]


def test_tokens_behind_a_stop_are_told_too(folder: Path) -> None:
    """A stop may end within a token: there is one entry for each token that was written."""
    model = paddock.load(str(folder))
    settings: dict[str, Any] = {"max_new_tokens": 6, "seed": 3}
    (whole,) = model.generate(PROMPTS[0], logprobs=0, **settings)
    assert whole.logprobs is not None
    places = [place for place, one in enumerate(whole.logprobs) if one["text"].strip()]
    stop = whole.logprobs[places[1]]["text"].strip()[-1]
    (cut,) = model.generate(PROMPTS[0], logprobs=0, stop=[stop], **settings)
    assert cut.logprobs is not None and len(cut.logprobs) == cut.tokens
    assert whole.logprobs[: cut.tokens] == cut.logprobs
    assert stop not in cut.text
