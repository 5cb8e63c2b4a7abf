"""SentencePiece, compared with transformers' T5 tokenizer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.config import TokenizerConfig
from paddock.data.tokenizers import sentencepiece as module
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer, load_tokenizer_folder
from paddock.errors import ConfigError, DataError, MachineError
from paddock.testing.samples.texts import train_sentencepiece

T5 = Path(__file__).parents[4] / "shared" / "data" / "tokenizers" / "t5"
TEXTS = [
    "Names refer to objects; größer, 对象.",
    "a <extra_id_0> b<extra_id_10>c</s> <pad><unk> <extra_id_100> </s",
    " <extra_id_1> ",
    " tabs\tand\n\nlines  and\u3000spaces ",
    "ﬁ ① Å 😀 \u200b x\u0000y ▁ a▁b",
    "",
    "   ",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model as T5's: <pad>, </s>, <unk>, then the pieces."""
    return train_sentencepiece(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def with_sentinels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with sentinels among its pieces, as mT5's."""
    sentinels = [f"▁<extra_id_{index}>" for index in (2, 1, 0)]
    return train_sentencepiece(tmp_path_factory.mktemp("sentinels"), user_defined_symbols=sentinels)


def load(path: Path, **settings: Any) -> Tokenizer:
    tokenizer = load_tokenizer(TokenizerConfig(kind="sentencepiece", model=str(path), **settings))
    assert tokenizer is not None
    return tokenizer


def theirs(path: Path, extra_ids: int = 100) -> Any:
    from transformers import T5Tokenizer

    return T5Tokenizer.from_pretrained(path.parent, extra_ids=extra_ids)


@pytest.mark.parametrize("real", [False, True])
def test_as_in_transformers(made: Path, real: bool, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    if real and not T5.is_dir():
        pytest.skip("the model of T5 is not on this machine")
    path = T5 / "spiece.model" if real else made
    tokenizer, reference = load(path), theirs(path)
    ids = tokenizer.encode_batch(TEXTS)
    assert ids == reference(TEXTS, add_special_tokens=False)["input_ids"]
    assert [tokenizer.encode(text) for text in TEXTS] == ids
    assert tokenizer.vocab_size == len(reference) == (32100 if real else 400)
    assert tokenizer.sentinel_ids == [reference.convert_tokens_to_ids(f"<extra_id_{index}>") for index in range(100)]
    assert tokenizer.sentinel_ids[0] == tokenizer.vocab_size - 1
    assert (tokenizer.pad_id, tokenizer.end_of_text_id, tokenizer.unk_id) == (0, 1, 2)
    assert [tokenizer.token_at(id) for id in range(tokenizer.vocab_size)] == reference.convert_ids_to_tokens(
        range(tokenizer.vocab_size)
    )

    tokenizer.save(tmp_path)
    again = load_tokenizer_folder(tmp_path)
    assert again is not None and again.encode_batch(TEXTS) == ids
    assert again.sentinel_ids == tokenizer.sentinel_ids and again.special == tokenizer.special
    exported = AutoTokenizer.from_pretrained(tmp_path)
    assert exported(TEXTS, add_special_tokens=False)["input_ids"] == ids
    assert (tmp_path / "spiece.model").read_bytes() == path.read_bytes()


# Not any character: transformers' own implementation differs from sentencepiece in a few (U+0085 is no space).
@given(st.lists(st.sampled_from([*"abe .,\n\t<>äß中の😀€▁　½", "</s>", "<pad>", "<extra_id_7>", "the"])).map("".join))
def test_any_text_as_in_transformers(made: Path, text: str) -> None:
    if not _PAIR:
        _PAIR.extend([load(made), theirs(made)])
    ours, reference = _PAIR
    assert ours.encode(text) == reference(text, add_special_tokens=False)["input_ids"]


_PAIR: list[Any] = []


def test_decoding(made: Path) -> None:
    tokenizer = load(made)
    text = "Names refer to objects"
    ids = tokenizer.encode(text)
    assert tokenizer.decode([0, 2, *ids, 1, tokenizer.sentinel_ids[3], 5000]) == text
    assert tokenizer.decode([]) == ""


def test_how_many_sentinels(made: Path) -> None:
    assert load(made, extra_ids=0).sentinel_ids == []
    tokenizer = load(made, extra_ids=3)
    assert tokenizer.sentinel_ids == [302, 301, 300]
    assert tokenizer.encode("<extra_id_2><extra_id_3>")[0] == 300
    assert len(tokenizer.encode("<extra_id_3>")) > 1


def test_a_model_with_its_own_sentinels(with_sentinels: Path, tmp_path: Path) -> None:
    tokenizer, reference = load(with_sentinels), theirs(with_sentinels, extra_ids=0)
    assert tokenizer.vocab_size == 300
    assert tokenizer.sentinel_ids == [tokenizer.id_of(f"▁<extra_id_{index}>") for index in range(3)]
    assert tokenizer.encode("the <extra_id_1> end") == reference("the <extra_id_1> end")["input_ids"][:-1]
    assert tokenizer.sentinel_ids[1] in tokenizer.encode("the <extra_id_1> end")
    assert load(with_sentinels, extra_ids=3).sentinel_ids == tokenizer.sentinel_ids
    with pytest.raises(ConfigError, match=r"extra_ids = 100(.|\n)*has 3 sentinels of its own"):
        load(with_sentinels, extra_ids=100)
    tokenizer.save(tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["extra_ids"] == 0
    assert load_tokenizer_folder(tmp_path).sentinel_ids == tokenizer.sentinel_ids  # type: ignore[union-attr]


def test_other_special_tokens(tmp_path: Path) -> None:
    """The library's own order, with a token that begins a text, without padding, and with names of one's own."""
    path = train_sentencepiece(tmp_path, pad_id=-1, unk_id=0, bos_id=1, eos_id=2, eos_piece="<end>", unk_piece="<what>")
    tokenizer = load(path, extra_ids=0)
    assert (tokenizer.unk_id, tokenizer.cls_id, tokenizer.end_of_text_id, tokenizer.pad_id) == (0, 1, 2, None)
    assert tokenizer.end_of_text == "<end>"
    assert load(path, end_of_text="<s>").end_of_text_id == 1
    with pytest.raises(ConfigError, match="has no such token"):
        load(path, end_of_text="</s>")


def test_pieces_that_continue_a_word(made: Path) -> None:
    tokenizer = load(made)
    continues = tokenizer.continuation()
    assert len(continues) == 400
    for id in range(400):
        assert continues[id] == (2 < id < 300 and not tokenizer.token_at(id).startswith("▁"))


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({}, -1),
        ({"TOKENIZERS_PARALLELISM": "true"}, -1),
        ({"TOKENIZERS_PARALLELISM": "False", "RAYON_NUM_THREADS": "4"}, 1),
        ({"RAYON_NUM_THREADS": "3"}, 3),
        ({"RAYON_NUM_THREADS": "0"}, -1),
    ],
)
def test_threads(made: Path, environment: dict[str, str], threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    tokenizer = load(made)
    ids = tokenizer.encode_batch(TEXTS * 5)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert module._threads() == threads
    assert tokenizer.encode_batch(TEXTS * 5) == ids


@pytest.mark.parametrize("content", [b"", b"hello", bytes(range(256)) * 10])
def test_foreign_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(DataError, match=r"spiece\.model is no SentencePiece model"):
        load(tmp_path / "spiece.model")


def test_a_piece_that_is_no_text(made: Path, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(made.read_bytes().replace("▁the".encode(), b"\xff\x96\x81the"))
    with pytest.raises(DataError, match=r"spiece\.model is no SentencePiece model"):
        load(tmp_path / "spiece.model")


def test_a_truncated_model(made: Path, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(made.read_bytes()[:1000])
    with pytest.raises(DataError, match="is no SentencePiece model"):
        load(tmp_path / "spiece.model")


def test_without_the_package(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(MachineError, match=r"needs the package sentencepiece(.|\n)*paddock\[text\]"):
        load(made)
