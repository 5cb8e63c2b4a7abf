"""Tokenizers: what every kind has in common, GPT-2's kind, folders, and whether one fits a model."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from paddock.data.config import TokenizerConfig
from paddock.data.language.embedded import embedded_documents
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import check_fits, load_tokenizer, load_tokenizer_folder, train_tokenizer
from paddock.errors import ConfigError, DataError

TEXTS = ["Names refer to objects; größer, 对象.", "", "  two\n\nlines 😀", "one<|endoftext|>two", "3.14 i18n"]
GPT2 = Path(__file__).parents[4] / "shared" / "data" / "tokenizers" / "gpt2"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small vocab.json and merges.txt of GPT-2's kind."""
    folder = tmp_path_factory.mktemp("vocabulary")
    train_tokenizer(embedded_documents()[:5], 400).engine.model.save(str(folder))
    return folder


def config(folder: Path, **settings: Any) -> TokenizerConfig:
    return TokenizerConfig(kind="gpt2", vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"), **settings)


@pytest.mark.parametrize("real", [False, True])
def test_gpt2_as_in_transformers(vocabulary: Path, real: bool, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, GPT2Tokenizer

    if real and not GPT2.is_dir():
        pytest.skip("the vocabulary of GPT-2 is not on this machine")
    folder = GPT2 if real else vocabulary
    tokenizer = load_tokenizer(config(folder))
    assert tokenizer is not None
    theirs = GPT2Tokenizer.from_pretrained(folder)
    assert tokenizer.encode_batch(TEXTS) == theirs(TEXTS)["input_ids"]
    assert [tokenizer.encode(text) for text in TEXTS] == tokenizer.encode_batch(TEXTS)
    tokenizer.save(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)(TEXTS)["input_ids"] == tokenizer.encode_batch(TEXTS)


def test_the_name_of_a_special_token_is_that_token(vocabulary: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(config(vocabulary))
    assert tokenizer is not None and tokenizer.end_of_text == "<|endoftext|>"
    ids = tokenizer.encode("one<|endoftext|>two")
    assert ids.count(tokenizer.end_of_text_id) == 1  # type: ignore[arg-type]
    assert tokenizer.decode(ids) == "onetwo"
    tokenizer.save(tmp_path)
    again = load_tokenizer_folder(tmp_path)
    assert again is not None and again.encode("one<|endoftext|>two") == ids
    assert again.special == tokenizer.special == {"end_of_text": "<|endoftext|>"}


def test_tokens_that_continue_a_word(vocabulary: Path) -> None:
    tokenizer = load_tokenizer(config(vocabulary))
    assert tokenizer is not None
    continues = tokenizer.continuation()
    ids = tokenizer.encode(" the objects<|endoftext|>")
    assert len(continues) == tokenizer.vocab_size
    for id in ids:
        name = tokenizer.token_at(id)
        assert tokenizer.id_of(name) == id
        assert continues[id] == (not name.startswith("Ġ") and name != "<|endoftext|>")
    assert tokenizer.unmarked().tolist() == list(range(tokenizer.vocab_size))


def test_words_that_are_never_cut(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({"▁one": 0, "two": 5}, unk_token="two")).save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer_folder(tmp_path)
    assert tokenizer is not None
    assert tokenizer.vocab_size == 6  # the highest id counts, not the number of tokens
    assert tokenizer.token_at(3) == ""
    assert not tokenizer.continuation().any() and len(tokenizer.continuation()) == 6
    assert tokenizer.end_of_text is None and tokenizer.end_of_text_id is None and tokenizer.sentinel_ids == []


def test_special_tokens_that_a_folder_names(vocabulary: Path, tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((vocabulary / name).read_bytes())
    settings = {"eos_token": {"content": "<|endoftext|>"}, "pad_token": "!", "mask_token": "not there"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer_folder(tmp_path)
    assert tokenizer is not None
    assert tokenizer.end_of_text_id == tokenizer.id_of("<|endoftext|>")
    assert tokenizer.pad_id == tokenizer.id_of("!") and tokenizer.mask_id is None
    assert load_tokenizer_folder(tmp_path, end_of_text="?").end_of_text == "?"  # type: ignore[union-attr]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    with pytest.raises(ConfigError, match=r'"</s>"(.|\n)*has no such token'):
        load_tokenizer_folder(tmp_path)
    for broken in ("{", "[]", '"x"', "[" * 100_000, '{"eos_token": 7}', '{"pad_token": {"content": 1}}'):
        (tmp_path / "tokenizer_config.json").write_text(broken)
        with pytest.raises(DataError, match=r"tokenizer_config\.json"):
            load_tokenizer_folder(tmp_path)
    for extra_ids in (-1, 2**31, 10**7, "4", 4.5, True):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": extra_ids}))
        with pytest.raises(DataError, match="extra_ids: input should be"):
            load_tokenizer_folder(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "gpt2", "vocab": "a"}, "needs tokenizer.merges"),
        ({"kind": "wordpiece"}, "needs tokenizer.vocab"),
        ({"kind": "sentencepiece"}, "needs tokenizer.model"),
        ({"kind": "file"}, "needs tokenizer.path"),
        ({"kind": "file", "path": "a", "model": "b"}, r"tokenizer\.model = b(.|\n)*kind = file would ignore it"),
        ({"kind": "gpt2", "vocab": "a", "merges": "b", "lower_case": True}, r"lower_case = True(.|\n)*ignore"),
        ({"kind": "sentencepiece", "model": "a", "chinese_whole_words": True}, r"whole_words = True(.|\n)*ignore"),
        ({"kind": "gpt2", "vocab": "a", "merges": "b", "extra_ids": 100}, r"extra_ids = 100(.|\n)*ignore"),
        ({"kind": "wordpiece", "vocab": "a", "merges": "b"}, r"merges = b(.|\n)*ignore"),
        ({"kind": "sentencepiece", "model": "a", "extra_ids": -1}, "extra_ids = -1"),
        ({"kind": "sentencepiece", "model": "a", "extra_ids": 2**31}, "extra_ids = 2147483648"),
        ({"kind": "wordpiece", "vocab": "a", "extra_ids": 2**31}, "extra_ids = 2147483648"),
        ({"kind": "bpe"}, "kind = bpe"),
    ],
)
def test_settings_that_a_kind_lacks_or_would_ignore(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TokenizerConfig(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "wordpiece", "vocab": "nowhere.txt"},
        {"kind": "sentencepiece", "model": "nowhere.txt"},
        {"kind": "file", "path": "nowhere.txt"},
        {"kind": "gpt2", "vocab": __file__, "merges": "nowhere.txt"},
    ],
)
def test_missing_files(settings: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"there is no tokenizer file nowhere\.txt"):
        load_tokenizer(TokenizerConfig(**settings))


WORDS = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
DESCRIPTION = {"version": "1.0", "added_tokens": [], "model": WORDS} | dict.fromkeys(
    ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
)


def charsmap(content: bytes) -> dict[str, Any]:
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": b64encode(content).decode()}}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [], "continuing_subword_prefix": 5}},
        {
            "model": {
                "type": "BPE",
                "vocab": {"a": 0, "b": 1, "ab": 2},
                "merges": [["a", "b"]],
                "continuing_subword_prefix": "####",  # the library panics
            }
        },
        charsmap(b""),
        charsmap(b"\xff\xff\xff\xff\0\0"),  # a map of 4 GB
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "x"}},
        {"normalizer": {"type": "Sequence", "normalizers": [charsmap(b"\xff\xff\xff\xff")["normalizer"]]}},
        {"model": {"type": "WordLevel", "vocab": {"a": 4_000_000_000, "[UNK]": 1}, "unk_token": "[UNK]"}},
        {"model": {"type": "WordLevel", "vocab": {"a": 10**8, "[UNK]": 1}, "unk_token": "[UNK]"}},
        {"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "[UNK]"}},
        {"model": None},
    ],
)
def test_a_crafted_tokenizer(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(DESCRIPTION | changes))
    with pytest.raises(DataError, match="tokenizer"):
        load_tokenizer_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b"[]"])
def test_a_tokenizer_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        load_tokenizer_folder(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[X]"}},
        {"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0]]}},
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},  # the library panics
        charsmap(bytes([4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),  # the library panics
    ],
)
def test_a_tokenizer_that_cannot_encode(tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(DESCRIPTION | changes))
    tokenizer = load_tokenizer_folder(tmp_path)
    assert isinstance(tokenizer, EngineTokenizer)
    for encode in (tokenizer.encode_batch, tokenizer.encode_with_offsets):
        with pytest.raises(DataError, match="the tokenizer cannot encode this text"):
            encode(["a b hello"])


def test_a_text_that_is_none(vocabulary: Path) -> None:
    tokenizer = load_tokenizer(config(vocabulary))
    assert tokenizer is not None
    with pytest.raises(DataError, match="the tokenizer cannot encode this text"):
        tokenizer.encode("\ud800")


def test_marks_of_chinese_words_need_a_tokenizer_of_berts_kind(tmp_path: Path) -> None:
    marked = {"type": "WordLevel", "vocab": {"中": 0, "##国": 1, "[UNK]": 2}, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(DESCRIPTION | {"model": marked}))
    (tmp_path / "tokenizer_config.json").write_text('{"chinese_whole_words": true}')
    with pytest.raises(DataError, match="none of BERT's kind"):
        load_tokenizer_folder(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "spiece.model", "vocab.json"])
def test_a_sparse_file_is_not_read(tmp_path: Path, name: str) -> None:
    with open(tmp_path / name, "wb") as stream:
        stream.truncate(3 * 2**30)
    (tmp_path / "merges.txt").touch()
    with pytest.raises(DataError, match="more than 134,217,728 bytes"):
        load_tokenizer_folder(tmp_path)


def test_no_tokenizer_yet() -> None:
    assert load_tokenizer(TokenizerConfig()) is None
    assert load_tokenizer(TokenizerConfig(kind="trained")) is None


def test_whether_it_fits_a_model(vocabulary: Path) -> None:
    tokenizer = load_tokenizer(config(vocabulary))
    assert tokenizer is not None
    check_fits(tokenizer, 400, parts=("end_of_text",))
    check_fits(tokenizer, 512)
    with pytest.raises(ConfigError, match=r"model\.vocab = 399(.|\n)*has 400 tokens(.|\n)*--model\.vocab 400"):
        check_fits(tokenizer, 399)
    with pytest.raises(ConfigError, match=r"has no pad token(.|\n)*of 400 has no \[PAD\] or <pad>"):
        check_fits(tokenizer, 400, parts=("end_of_text", "pad"))
    with pytest.raises(ConfigError, match=r"has 0 sentinels(.|\n)*needs 100: (.|\n)*--tokenizer\.extra-ids 100"):
        check_fits(tokenizer, 400, sentinels=100)
