"""Which tokenizer goes with the weights that a recipe loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.config.tokenizer_of_weights import with_tokenizer_of_weights
from paddock.testing.texts import write_vocabulary


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
