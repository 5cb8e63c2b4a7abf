"""What span corruption asks of a tokenizer, before anything is trained, and what it shows of a corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.main import run
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.data.config import SpanConfig, TokenizerConfig
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer
from paddock.errors import ConfigError, DataError
from paddock.models.t5.config import T5Config
from paddock.tasks.registry import prepare_data
from paddock.tasks.span_corruption import span_objective
from paddock.testing.samples.texts import train_sentencepiece

Captured = pytest.CaptureFixture[str]
SMALL = SpanConfig(sequence_length=32, target_length=16)
SENTENCES = [
    "Names refer to objects.",
    "Each occurrence of a name in the program text refers to the binding of that name.",
    "The following constructs bind names, and an import statement binds all names.",
]


def sentencepiece(folder: Path, sentinels: list[str], **settings: Any) -> Tokenizer:
    path = train_sentencepiece(folder, user_defined_symbols=sentinels)
    found = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(path), **settings))
    assert found is not None
    return found


def unigram(sentinels: list[str]) -> Tokenizer:
    """A tokenizer.json of T5's kind."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("a", -1.0), ("b", -1.0)]
    engine = Engine(models.Unigram([*pieces, *((name, -5.0) for name in sentinels)], unk_id=2))
    return EngineTokenizer(engine)


def named(*numbers: int) -> list[str]:
    return [f"<extra_id_{number}>" for number in numbers]


@pytest.mark.parametrize("mark", ["", "▁"])
def test_the_highest_comes_first(tmp_path: Path, mark: str) -> None:
    tokenizer = sentencepiece(tmp_path, [mark + name for name in named(3, 2, 1, 0)])
    assert span_objective(SMALL, tokenizer).tokens.sentinels == tuple(tokenizer.sentinel_ids)
    assert tokenizer.sentinel_ids[0] == max(tokenizer.sentinel_ids)
    assert span_objective(SMALL, unigram(named(3, 2, 1, 0)))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 1, 2, 3), r"not in order(.|\n)*<extra_id_0> first(.|\n)*take the files"),
        ((2, 3, 1, 0), "not in order"),
        ((5, 4, 2, 1, 0), r"no <extra_id_3>(.|\n)*higher numbers"),
        ((4, 3, 2, 1), "no <extra_id_0>"),
    ],
)
def test_sentinels_that_are_wrong(tmp_path: Path, numbers: tuple[int, ...], message: str) -> None:
    for tokenizer in (
        sentencepiece(tmp_path, named(*numbers), extra_ids=0 if 0 not in numbers else None),
        unigram(named(*numbers)),
    ):
        with pytest.raises(DataError, match=message):
            span_objective(SMALL, tokenizer)


def test_none_and_too_few(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has 0 sentinels(.|\n)*extra-ids"):
        span_objective(SMALL, unigram([]))
    with pytest.raises(ConfigError, match=r"2 spans, but the tokenizer 1 sentinels(.|\n)*extra-ids"):
        span_objective(SMALL, unigram(named(0)))


def test_training_is_refused_before_it_begins(tmp_path: Path) -> None:
    tokenizer = sentencepiece(tmp_path, named(0, 1, 2, 3))
    corpus = write_corpus(tmp_path, tokenizer)
    recipe = recipe_with(tmp_path, corpus)
    with pytest.raises(DataError, match="not in order"):
        prepare_data(recipe)
    (tmp_path / "few").mkdir()
    train_sentencepiece(tmp_path / "few")
    few = merge(recipe.to_dict(), {"tokenizer": {"model": str(tmp_path / "few" / "spiece.model"), "extra_ids": 1}})
    with pytest.raises(ConfigError, match="the tokenizer 1 sentinels"):
        prepare_data(recipe_from_dict(few))


def test_a_decoder_begins_with_a_token_of_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = sentencepiece(tmp_path, named(3, 2, 1, 0))
    size = tokenizer.vocab_size
    assert span_objective(SMALL, tokenizer, T5Config(vocab=size + 1, decoder_start=size - 1)).tokens.start == size - 1
    with pytest.raises(ConfigError, match=rf"model.decoder_start = {size}(.|\n)*--model.decoder-start 0 \(<pad>\)"):
        span_objective(SMALL, tokenizer, T5Config(vocab=size + 1, decoder_start=size))


def recipe_with(folder: Path, corpus: Path) -> Recipe:
    values = load_recipe("t5/tiny").to_dict()
    data = {"source": "indexed", "path": str(corpus), "sequence_length": 32, "target_length": 16}
    tokenizer = {"kind": "sentencepiece", "model": str(folder / "spiece.model"), "extra_ids": None}
    return recipe_from_dict(merge(values, {"data": data, "tokenizer": tokenizer}))


def write_corpus(folder: Path, tokenizer: Tokenizer, split: bool = True) -> Path:
    with IndexedWriter(folder / "corpus", tokenizer.vocab_size) as writer:
        for _ in range(4):
            sentences = [tokenizer.encode(sentence) for sentence in SENTENCES]
            writer.add_document(*(sentences if split else [[token for sentence in sentences for token in sentence]]))
    return folder / "corpus"


def filled_in(source: list[int], target: list[int], sentinels: set[int]) -> list[int]:
    """The passage again: every sentinel of the source replaced by its span in the target, without the end."""
    spans: dict[int, list[int]] = {}
    for token in target[:-1]:
        if token in sentinels:
            name = token
            spans[name] = []
        else:
            spans[name].append(token)
    return [token for place in source[:-1] for token in (spans[place] if place in sentinels else [place])]


def test_a_preview(tmp_path: Path, capsys: Captured) -> None:
    path = train_sentencepiece(tmp_path)  # lies beside the corpus
    tokenizer = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(path)))
    assert tokenizer is not None
    corpus = write_corpus(tmp_path, tokenizer)
    flags = ["--task", "span_corruption", "--sequence-length", "64", "--documents", "2"]
    assert run(["data", "inspect", str(corpus), *flags, "--json"]) == 0
    samples = json.loads(capsys.readouterr().out)["samples"]
    assert [sample["document"] for sample in samples] == [0, 3]
    for sample in samples:
        again = filled_in(sample["source_ids"], sample["target_ids"], set(tokenizer.sentinel_ids))
        assert tokenizer.decode(again) == sample["passage"] and len(again) == sample["tokens"]
        assert " ".join(SENTENCES).startswith(sample["passage"])
        assert sample["source"].count("<extra_id_") == sample["target"].count("<extra_id_") == sample["spans"]
        assert sample["source"].endswith("</s>") and sample["target"].startswith("<extra_id_0>")
    assert samples[0]["target"] != samples[1]["target"]
    assert run(["data", "inspect", str(corpus), "--tokenizer-model", str(path), *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"  {samples[0]['passage']}" in lines and f"  {samples[0]['source']}" in lines
    assert f"  {samples[0]['target']}" in lines and lines[0].startswith("corpus")


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ("--task span_corruptoin", 2, 'did you mean "span_corruption"'),
        ("--masking 0.2", 2, "--masking is for --task"),
        ("--task span_corruption --masking 1.5", 2, "masking"),
        ("--task span_corruption --tokenizer-model {folder}/spiece.model --extra-ids 1", 2, "1 sentinels"),
        ("--task span_corruption --extra-ids 7", 2, "says itself how many"),
        ("--task span_corruption --vocab-file {folder}/vocab.txt --extra-ids 99", 4, "does not fit"),
    ],
)
def test_a_preview_that_cannot_be(tmp_path: Path, flags: str, code: int, message: str, capsys: Captured) -> None:
    path = train_sentencepiece(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    tokenizer = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(path)))
    assert tokenizer is not None
    corpus = write_corpus(tmp_path, tokenizer)
    assert run(["data", "inspect", str(corpus), *flags.format(folder=tmp_path).split()]) == code
    assert message in capsys.readouterr().err


def test_a_preview_needs_sentences_and_a_tokenizer(tmp_path: Path, capsys: Captured) -> None:
    path = train_sentencepiece(tmp_path)
    tokenizer = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(path)))
    assert tokenizer is not None
    corpus = write_corpus(tmp_path, tokenizer, split=False)
    assert run(["data", "inspect", str(corpus), "--task", "span_corruption"]) == 4
    assert "--split-sentences" in capsys.readouterr().err
    path.unlink()
    assert run(["data", "inspect", str(corpus), "--task", "span_corruption"]) == 2
    assert "needs a tokenizer" in capsys.readouterr().err
