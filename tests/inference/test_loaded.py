"""`paddock.load`: a trained model in Python, beside what transformers says of the same weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import paddock
from paddock.cli.main import run
from paddock.devices import products
from paddock.errors import ConfigError, UserError
from paddock.inference.loaded import LoadedModel, windows
from paddock.models.config import IGNORED


@pytest.fixture(scope="module")
def loaded(trained_run: Path) -> LoadedModel:
    return paddock.load(str(trained_run))


def test_it_writes_what_the_command_does(
    loaded: LoadedModel, trained_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--max-new-tokens", "7", "--seed", "4", "--num-return-sequences", "2", "--json"]
    assert run(["generate", str(trained_run), "--prompt", "The class", "A name", *flags]) == 0
    expected = [one["text"] for one in json.loads(capsys.readouterr().out)]
    settings = {"max_new_tokens": 7, "seed": 4, "num_return_sequences": 2}
    assert loaded.generate(["The class", "A name"], **settings) == expected
    pieces = list(loaded.generate(["The class", "A name"], stream=True, **settings))
    assert ["".join(text for number, text in pieces if number == wanted) for wanted in range(4)] == expected
    assert len(pieces) > 8, "they come one by one"
    assert "GPT2" in repr(loaded) and str(trained_run) in repr(loaded)


def test_it_multiplies_as_the_command_does(trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the products that were found faster here, while it writes; a stream that waits changes nobody else's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("SMALLEST_PRODUCT", "SMALLEST_KEPT", "SMALLEST_MODEL"):
        monkeypatch.setattr(products, name, 0)
    monkeypatch.setattr(products, "measure", lambda: products.choose("onednn", "any", 0).ways)
    calls: list[str] = []
    multiply = products.PackedWeight.multiply

    def counted(self: products.PackedWeight, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        calls.append("packed")
        return multiply(self, x, bias)

    monkeypatch.setattr(products.PackedWeight, "multiply", counted)
    model = paddock.load(str(trained_run))
    prompts, settings = ["The class", "A name", "If"], {"max_new_tokens": 4, "temperature": 0}
    whole = model.generate(prompts, **settings)
    assert calls
    one, other = (model.generate(prompts, stream=True, **settings) for _ in range(2))
    pieces = [(*first, *second) for first, second in zip(one, other, strict=True)]
    assert all(piece[:2] == piece[2:] for piece in pieces)
    assert ["".join(piece[1] for piece in pieces if piece[0] == number) for number in range(3)] == whole
    assert products.pack(torch.rand(64, 64), 8) is None, "nothing is packed where nobody writes"


def test_perplexity_is_that_of_transformers(loaded: LoadedModel, trained_run: Path, tmp_path: Path) -> None:
    """With the windows of its guide: each token is scored once, with at least half a context before it."""
    from transformers import AutoModelForCausalLM

    assert run(["convert", str(trained_run), str(tmp_path / "hf")]) == 0
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    text = "The class statement is executed in a new frame; names that it binds are the attributes of the class. " * 3
    tokens, total, end = loaded.tokenizer.encode(text), 0.0, 0
    length = theirs.config.n_positions
    assert len(tokens) > 2 * length
    for begin in range(0, len(tokens), length // 2):
        part = torch.tensor([tokens[begin : begin + length]])
        new = begin + part.shape[1] - end
        with torch.no_grad():
            scores = theirs(part).logits[0, :-1].log_softmax(-1)
        wanted = range(part.shape[1] - min(new, part.shape[1] - 1) - 1, part.shape[1] - 1)
        total -= sum(scores[place, part[0, place + 1]].item() for place in wanted)
        end = begin + part.shape[1]
        if end == len(tokens):
            break
    ours = loaded.perplexity(text, stride=length // 2)
    assert ours == pytest.approx(math.exp(total / (len(tokens) - 1)), rel=0.02)  # windows end elsewhere
    short = loaded.tokenizer.decode(tokens[: length - 2])
    ids = torch.tensor([loaded.tokenizer.encode(short)])
    with torch.no_grad():
        exact = math.exp(theirs(ids, labels=ids).loss.item())
    assert loaded.perplexity(short) == pytest.approx(exact, rel=1e-4)


@given(st.integers(2, 60), st.integers(1, 20), st.data())
def test_windows_score_every_token_once(count: int, length: int, data: st.DataObject) -> None:
    length = min(length, count - 1)
    stride = data.draw(st.integers(1, length))
    tokens = list(range(100, 100 + count))
    rows = windows(tokens, length, stride)
    scored = [label for _, labels in rows for label in labels if label != IGNORED]
    assert scored == tokens[1:]
    for given_tokens, labels in rows:
        assert len(given_tokens) == len(labels) == length
        assert all(label in (IGNORED, token + 1) for token, label in zip(given_tokens, labels, strict=True))


def test_bad_input(loaded: LoadedModel, tmp_path: Path) -> None:
    for wrong in ({"temprature": 1.0}, {"temperature": -1.0}, {"stop": [""]}, {"stop": "x"}):
        with pytest.raises(ConfigError):
            loaded.generate("The class", **wrong)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="did you mean .temperature"):
        loaded.generate("The class", temprature=1.0)
    with pytest.raises(ConfigError, match=r"prompts(\[\d\])? is \d+, of type int"):
        loaded.generate([7])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="0 tokens"):
        loaded.perplexity("")
    with pytest.raises(ConfigError, match="stride"):
        loaded.perplexity("The class statement", stride=0)
    with pytest.raises(UserError, match="nowhere"):
        paddock.load(str(tmp_path / "nowhere"))


def test_what_a_format_costs(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("The class statement is executed in a new frame. Names are bound there. " * 9)
    base = ["check", "formats", str(trained_run), "--text", str(tmp_path / "text.txt")]
    assert run([*base, "--json"]) == 0
    found = {one["format"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(found) == ["float32", "bfloat16", "int8", "int8-dynamic"]
    whole = found["float32"]
    assert whole["change"] == 0 and whole["perplexity"] == pytest.approx(
        paddock.load(str(trained_run)).perplexity((tmp_path / "text.txt").read_text())
    )
    assert all(0 < abs(one["change"]) < 0.05 for name, one in found.items() if name != "float32")
    assert found["bfloat16"]["weight_bytes"] == whole["weight_bytes"] / 2
    assert run([*base, "--formats", "bfloat16"]) == 0
    assert "bfloat16" in capsys.readouterr().out
    assert run(["check", "formats", str(trained_run), "--text", str(tmp_path / "nowhere")]) == 4
    assert "cannot read --text" in capsys.readouterr().err
