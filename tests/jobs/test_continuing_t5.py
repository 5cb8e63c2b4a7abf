"""Training that begins from a Hugging Face folder of T5 or mT5: config, weights and tokenizer belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from paddock.checkpoint.foreign.huggingface import save_folder
from paddock.cli.main import run
from paddock.data.config import TokenizerConfig
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.language.embedded import embedded_documents
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer
from paddock.models.layers.initialization import initialize
from paddock.models.t5.config import T5Config
from paddock.models.t5.model import T5
from paddock.testing.samples.texts import train_sentencepiece

Captured = pytest.CaptureFixture[str]
VOCAB = 330
KINDS = {"t5": {"tied": True, "scale_head": True, "gated": False, "activation": "relu"}, "mt5": {}}
SHAPE = {"layers": 1, "hidden": 16, "heads": 2, "head_size": 8, "feed_forward": 16}
FLAGS = [f"--model.{name.replace('_', '-')}={value}" for name, value in SHAPE.items()]
SHORT = [
    *("--steps", "1", "--batch.micro", "2", "--batch.global", "2", "--evaluate.every", "None"),
    *("--data.source", "indexed", "--data.sequence-length", "24", "--data.target-length", "16"),
    *("--precision.compute", "float32", "--schedule.warmup", "0", "--schedule.decay-steps", "10"),
]


def model_folder(folder: Path, kind: str, spiece: Path, vocab: int = VOCAB) -> Tokenizer:
    tokenizer = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(spiece), extra_ids=20))
    assert tokenizer is not None
    settings: dict[str, Any] = {**SHAPE, **KINDS[kind]}
    model = T5(T5Config(vocab=vocab, **settings))
    initialize(model, 1)
    save_folder(model.state_dict(), model.config, folder, add_files=tokenizer.save)
    return tokenizer


def corpus(folder: Path, tokenizer: Tokenizer) -> Path:
    with IndexedWriter(folder / "corpus", tokenizer.vocab_size) as writer:
        for text in embedded_documents()[:4]:
            writer.add_document(*tokenizer.encode_batch([line for line in text[:2000].splitlines() if line]))
    return folder / "corpus"


def train(folder: Path, recipe: str, *flags: str) -> int:
    arguments = [recipe, *FLAGS, *SHORT, "--data.path", str(folder / "corpus"), "--run-dir", str(folder / "run")]
    return run(["train", *arguments, "--checkpoint.load", str(folder / "model"), *flags])


def test_it_goes_on_with_the_folders_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    path = train_sentencepiece(tmp_path / "made")
    corpus(tmp_path, model_folder(tmp_path / "model", "mt5", path))
    assert train(tmp_path, "mt5/base", "--model.vocab", str(VOCAB)) == 0
    assert (tmp_path / "run" / "spiece.model").read_bytes() == path.read_bytes()
    assert run(["convert", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "spiece.model").read_bytes() == path.read_bytes()
    assert load_file(tmp_path / "out" / "model.safetensors")["shared.weight"].shape == (VOCAB, 16)


@pytest.mark.parametrize(
    ("weights", "recipe", "vocab", "flags", "code", "message"),
    [
        ("t5", "mt5/base", VOCAB, (), 4, r"holds a T5 v1.0"),
        ("mt5", "t5/base", VOCAB, (), 4, r"holds a T5 v1.1 or mT5"),
        ("mt5", "mt5/base", VOCAB, ("--model.vocab", "400"), 2, f"--model.vocab {VOCAB}"),
        ("mt5", "mt5/base", 310, ("--model.vocab", "310"), 2, "take the tokenizer that they came with"),
    ],
)
def test_what_does_not_belong_together(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    weights: str,
    recipe: str,
    vocab: int,
    flags: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    path = train_sentencepiece(tmp_path / "made")
    corpus(tmp_path, model_folder(tmp_path / "model", weights, path, vocab))
    flags = flags or ("--model.vocab", str(VOCAB))
    assert train(tmp_path, recipe, *flags) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("to", ["paddock", "huggingface"])
def test_a_spiece_model_beside_a_tokenizer_json_goes_along(tmp_path: Path, to: str) -> None:
    """Published T5s have both."""
    (tmp_path / "made").mkdir()
    path = train_sentencepiece(tmp_path / "made")
    model_folder(tmp_path / "model", "t5", path)
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("a", -1.0)]
    Engine(models.Unigram(pieces, unk_id=2)).save(str(tmp_path / "model" / "tokenizer.json"))
    assert run(["convert", str(tmp_path / "model"), str(tmp_path / "ours"), "--to", "paddock"]) == 0
    found = tmp_path / "ours"
    if to == "huggingface":
        found = tmp_path / "theirs"
        assert run(["convert", str(tmp_path / "ours"), str(found)]) == 0
    assert (found / "spiece.model").read_bytes() == path.read_bytes() and (found / "tokenizer.json").is_file()
