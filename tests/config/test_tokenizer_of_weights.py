"""Which tokenizer goes with the weights that a recipe loads, or with the corpus that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.tokenizer_of_weights import tokenizer_place, with_tokenizer_of_weights
from paddock.data.config import TokenizerConfig
from paddock.errors import DataError
from paddock.testing.samples.texts import write_vocabulary


def answers(**tokenizer: Any) -> Recipe:
    """The recipe that people finetune; its vocab.txt is nowhere."""
    return recipe_from_dict(merge(load_recipe("bert/base-uncased-squad").to_dict(), {"tokenizer": tokenizer}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "theirs").mkdir()
    write_vocabulary(tmp_path / "theirs")
    return tmp_path / "theirs"


def test_a_vocabulary_that_is_not_there(folder: Path) -> None:
    found = with_tokenizer_of_weights(answers(), folder).tokenizer
    assert (found.kind, found.vocab, found.lower_case) == ("wordpiece", str(folder / "vocab.txt"), True)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert not with_tokenizer_of_weights(answers(), folder).tokenizer.lower_case
    (folder / "tokenizer.json").touch()
    found = with_tokenizer_of_weights(answers(), folder).tokenizer
    assert (found.kind, found.path, found.vocab) == ("file", str(folder / "tokenizer.json"), None)


def test_a_tokenizer_is_not_learned_anew_for_weights_that_have_one(folder: Path) -> None:
    learned = answers(kind="trained", vocab=None, lower_case=False)
    assert with_tokenizer_of_weights(learned, folder).tokenizer.kind == "wordpiece"
    assert with_tokenizer_of_weights(learned, None) == learned


def test_what_the_user_names_is_taken(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    recipe = answers(vocab=str(write_vocabulary(tmp_path / "mine")))
    assert with_tokenizer_of_weights(recipe, folder) == recipe
    assert with_tokenizer_of_weights(answers(), tmp_path) == answers()


def test_a_checkpoint_has_that_of_its_run(folder: Path) -> None:
    checkpoint = folder / "checkpoints" / "step-00000001"
    checkpoint.mkdir(parents=True)
    assert with_tokenizer_of_weights(answers(), str(checkpoint)).tokenizer.vocab == str(folder / "vocab.txt")


def test_a_spiece_model_is_the_original(tmp_path: Path) -> None:
    for name in ("spiece.model", "tokenizer.json"):
        (tmp_path / name).touch()
    found = with_tokenizer_of_weights(load_recipe("mt5/base"), tmp_path).tokenizer
    assert (found.kind, found.model, found.extra_ids) == ("sentencepiece", str(tmp_path / "spiece.model"), None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": 16}))
    assert with_tokenizer_of_weights(load_recipe("mt5/base"), tmp_path).tokenizer.extra_ids == 16


def test_random_tokens_stay_without(folder: Path) -> None:
    values = load_recipe("gpt2/tiny").to_dict()
    recipe = recipe_from_dict(merge(values, {"data": {"source": "synthetic"}, "tokenizer": {"kind": "none"}}))
    assert with_tokenizer_of_weights(recipe, folder) == recipe


def corpus(folder: Path, name: str = "corpus") -> Path:
    """Where a corpus would be that remembers its tokenizer."""
    (folder / f"{name}.tokenizer").mkdir()
    return folder / name


def reading(recipe: str, *paths: Path | float, **tokenizer: Any) -> Recipe:
    changes = {"data": {"source": "indexed", "path": [*map(str, paths)]}, "tokenizer": tokenizer}
    return recipe_from_dict(merge(load_recipe(recipe).to_dict(), changes))


@pytest.mark.parametrize("name", ["gpt2/117m", "gpt2/tiny", "t5/base", "bert/base"])
def test_a_corpus_has_its_own(tmp_path: Path, name: str) -> None:
    """Whether a recipe has none, would learn one, or names files that are nowhere."""
    found = with_tokenizer_of_weights(reading(name, corpus(tmp_path)), None)
    assert found.tokenizer == TokenizerConfig(kind="folder", path=str(tmp_path / "corpus.tokenizer"))
    assert tokenizer_place(found.tokenizer) == str(tmp_path / "corpus")
    assert with_tokenizer_of_weights(found, None) == found


def test_of_several_corpora_one_says_it(tmp_path: Path) -> None:
    recipe = reading("gpt2/117m", 0.5, tmp_path / "silent", 0.5, corpus(tmp_path))
    assert with_tokenizer_of_weights(recipe, None).tokenizer.path == str(tmp_path / "corpus.tokenizer")
    silent = reading("gpt2/117m", tmp_path / "silent")
    assert with_tokenizer_of_weights(silent, None) == silent


def test_that_of_the_weights_comes_first(tmp_path: Path, folder: Path) -> None:
    found = with_tokenizer_of_weights(reading("gpt2/117m", corpus(tmp_path)), folder).tokenizer
    assert (found.kind, found.vocab) == ("wordpiece", str(folder / "vocab.txt"))
    named = reading("gpt2/117m", tmp_path / "corpus", kind="folder", path=str(folder))
    assert with_tokenizer_of_weights(named, None) == named


def from_text(**tokenizer: Any) -> Recipe:
    values = merge(load_recipe("gpt2/magicprompt").to_dict(), {"data": {"path": "prompts.txt"}})
    return recipe_from_dict(merge(values, {"tokenizer": tokenizer}))


def test_a_tokenizer_is_learned_from_text_for_new_weights_only(tmp_path: Path, folder: Path) -> None:
    assert with_tokenizer_of_weights(from_text(), None).tokenizer.kind == "trained"
    assert with_tokenizer_of_weights(from_text(), tmp_path / "not-yet").tokenizer.kind == "trained"
    assert with_tokenizer_of_weights(from_text(), folder).tokenizer.vocab == str(folder / "vocab.txt")
    embedded = load_recipe("gpt2/tiny")
    assert with_tokenizer_of_weights(embedded, folder) == embedded


def test_weights_without_a_tokenizer_get_no_other(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"has no tokenizer(.|\n)*by their numbers(.|\n)*vocab\.json and merges\.txt"):
        with_tokenizer_of_weights(from_text(), tmp_path)
    named = from_text(kind="gpt2", vocab=str(tmp_path / "config.json"), merges=str(tmp_path / "config.json"))
    assert with_tokenizer_of_weights(named, tmp_path) == named
