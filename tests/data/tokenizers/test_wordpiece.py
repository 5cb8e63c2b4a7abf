"""WordPiece, compared with transformers' BERT tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.config import TokenizerConfig
from paddock.data.language.embedded import embedded_documents
from paddock.data.tokenizers.engine import BERT_NAMES, train_wordpiece
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer, load_tokenizer_folder
from paddock.errors import ConfigError, DataError

SHARED = Path(__file__).parents[4] / "shared" / "data" / "tokenizers"
TOKENS = [
    *(
        "[PAD]",
        "[unused1]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "!",
        ",",
        ".",
        "-",
        "'",
        "$",
        "中",
        "国",
        "##国",
        "の",
    ),
    *(
        "a",
        "A",
        "b",
        "c",
        "e",
        "é",
        "un",
        "##aff",
        "##able",
        "the",
        "The",
        "##s",
        "##a",
        "##e",
        "##x",
        "x",
        "1",
        "##9",
        "ß",
    ),
]
TEXTS = [
    "The unaffable thes, un-affable! $1.19",
    "Éé \u00e9 e\u0301 ÀÇ naïve ßßß İstanbul ǅ",
    "我爱中国，中国！ 東京の夜 \u3000 한국어 𠀀𪜀 豈",
    "a\x00b\u200bc\ufffdd\u00ade\ufefff \x07\x1f\x7f g\u2028h\ri",
    "😀 👩‍👩‍👧 🇩🇪 ☕️ ①②",
    "x" * 99 + " " + "x" * 100 + " " + "x" * 101,
    "[MASK] the [mask][SEP]a [UNK] [unused1] [ MASK ] <extra_id_0>",
    "a_b @user #tag a/b ‘quotes’ “x” … — ·",
    "",
    " \t\n ",
    "\u202eabc\u202c z\u0336a",
]


def made(folder: Path) -> Path:
    path = folder / "vocab.txt"
    path.write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    return path


def load(path: Path, **settings: Any) -> Tokenizer:
    tokenizer = load_tokenizer(TokenizerConfig(kind="wordpiece", vocab=str(path), **settings))
    assert tokenizer is not None
    return tokenizer


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(params=["made", "bert_base_uncased", "bert_base_chinese"])
def any_vocabulary(request: pytest.FixtureRequest, vocabulary: Path) -> Path:
    if request.param == "made":
        return vocabulary
    path = SHARED / request.param / "vocab.txt"
    if not path.is_file():
        pytest.skip(f"the vocabulary {request.param} is not on this machine")
    return path


@pytest.mark.parametrize("lower_case", [True, False])
def test_as_in_transformers(any_vocabulary: Path, lower_case: bool, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BertTokenizer

    tokenizer = load(any_vocabulary, lower_case=lower_case)
    theirs = BertTokenizer.from_pretrained(any_vocabulary.parent, do_lower_case=lower_case)
    ids = tokenizer.encode_batch(TEXTS)
    assert ids == theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert tokenizer.vocab_size == len(theirs)
    for part in ("pad", "cls", "sep", "mask", "unk"):
        assert getattr(tokenizer, f"{part}_id") == getattr(theirs, f"{part}_token_id") is not None
    assert tokenizer.end_of_text_id == theirs.sep_token_id
    assert [tokenizer.decode(row) for row in ids] == [theirs.decode(row, skip_special_tokens=True) for row in ids]

    tokenizer.save(tmp_path)
    again = load_tokenizer_folder(tmp_path)
    assert again is not None and again.encode_batch(TEXTS) == ids and again.special == tokenizer.special
    exported = AutoTokenizer.from_pretrained(tmp_path)
    assert exported(TEXTS)["input_ids"] == theirs(TEXTS)["input_ids"]  # with [CLS] and [SEP]


@given(text=st.text(max_size=60), lower_case=st.booleans())
def test_any_text_as_in_transformers(vocabulary: Path, text: str, lower_case: bool) -> None:
    ours, theirs = _pair(vocabulary, lower_case)
    assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]


_PAIRS: dict[bool, Any] = {}


def _pair(vocabulary: Path, lower_case: bool) -> Any:
    from transformers import BertTokenizer

    if lower_case not in _PAIRS:
        theirs = BertTokenizer.from_pretrained(vocabulary.parent, do_lower_case=lower_case)
        _PAIRS[lower_case] = load(vocabulary, lower_case=lower_case), theirs
    return _PAIRS[lower_case]


def test_what_a_folder_says_about_case(vocabulary: Path, tmp_path: Path) -> None:
    made(tmp_path)
    uncased = load_tokenizer_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = load_tokenizer_folder(tmp_path)
    assert uncased is not None and cased is not None
    assert uncased.encode("The A é") == load(vocabulary, lower_case=True).encode("The A é")
    assert cased.encode("The A é") == [TOKENS.index(token) for token in ("The", "A", "é")]


def test_tokens_that_continue_a_word(vocabulary: Path) -> None:
    tokenizer = load(vocabulary, extra_ids=2)
    continues = [token for id, token in enumerate(TOKENS) if tokenizer.continuation()[id]]
    assert continues == [token for token in TOKENS if token.startswith("##")]
    assert len(tokenizer.continuation()) == tokenizer.vocab_size == len(TOKENS) + 4


def test_sentinels_behind_the_vocabulary(vocabulary: Path, tmp_path: Path) -> None:
    assert load(vocabulary).sentinel_ids == []
    tokenizer = load(vocabulary, extra_ids=100)
    assert tokenizer.id_of("[BOS]") == len(TOKENS) and tokenizer.end_of_text_id == len(TOKENS) + 1
    assert load(vocabulary).end_of_text == "[SEP]"
    first = len(TOKENS) + 2
    assert tokenizer.sentinel_ids == list(range(first, first + 100))
    ids = tokenizer.encode("the <extra_id_0>a<extra_id_99>")
    assert ids == [TOKENS.index("the"), first, TOKENS.index("a"), first + 99]
    assert tokenizer.token_at(first + 7) == "<extra_id_7>"
    tokenizer.save(tmp_path)
    again = load_tokenizer_folder(tmp_path)
    assert again is not None and again.sentinel_ids == tokenizer.sentinel_ids


def test_a_vocabulary_with_sentinels(tmp_path: Path) -> None:
    path = made(tmp_path)
    path.write_text("<extra_id_1>\n<extra_id_0>\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    for settings in ({}, {"extra_ids": 2}):
        tokenizer = load(path, **settings)
        assert tokenizer.sentinel_ids == [1, 0] and tokenizer.vocab_size == len(TOKENS) + 2
    with pytest.raises(ConfigError, match=r"extra_ids = 100(.|\n)*has 2 sentinels of its own"):
        load(path, extra_ids=100)


def test_lines_that_come_twice(tmp_path: Path) -> None:
    path = made(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + "the\n", encoding="utf-8")
    tokenizer = load(path)
    assert tokenizer.encode("the") == [len(TOKENS)] and tokenizer.vocab_size == len(TOKENS) + 1
    with pytest.raises(DataError, match="lines twice"):
        load(path, extra_ids=1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", r"no line \[UNK\]"), (b'{"a": 0}', r"no line \[UNK\] or \[CLS\]"), (b"\xff\xfe[UNK]\n", "not UTF-8")],
)
def test_foreign_files(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(DataError, match=rf"is no WordPiece vocabulary(.|\n)*{reason}"):
        load(tmp_path / "vocab.txt")


@pytest.mark.parametrize("texts", [TEXTS, embedded_documents()[:20]])
def test_learning_again_gives_the_same_pieces(texts: list[str]) -> None:
    first, second, third = (train_wordpiece(texts, 400).engine for _ in range(3))
    assert first.to_str() == second.to_str() == third.to_str()
    pieces = sorted(first.get_vocab(), key=lambda piece: first.get_vocab()[piece])
    assert tuple(pieces[: len(BERT_NAMES)]) == BERT_NAMES
    # Pieces that continue words are no special ones: whoever writes them in a text means the characters.
    assert set(first.get_added_tokens_decoder()) == set(range(len(BERT_NAMES)))
    assert any(piece.startswith("##") for piece in pieces)
    assert "[UNK]" not in first.encode(texts[0], add_special_tokens=False).tokens


def test_learned_pieces_cover_what_the_library_finds() -> None:
    from tokenizers import Tokenizer as Engine
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    theirs = Engine(models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer, theirs.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=list(BERT_NAMES), show_progress=False)
    theirs.train_from_iterator(TEXTS, trainer)
    ours = train_wordpiece(TEXTS, 400).engine
    assert {piece for piece in theirs.get_vocab() if len(piece.removeprefix("##")) == 1} == {
        piece for piece in ours.get_vocab() if len(piece.removeprefix("##")) == 1
    }
