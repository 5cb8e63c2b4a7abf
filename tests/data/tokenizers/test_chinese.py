"""Marks of Chinese words. Where jieba is not installed a small dictionary stands in for its own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.config import TokenizerConfig
from paddock.data.tokenizers.chinese import WholeWordTokenizer
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer, load_tokenizer_folder
from paddock.errors import DataError, MachineError

CHINESE = Path(__file__).parents[4] / "shared" / "data" / "tokenizers" / "bert_base_chinese" / "vocab.txt"
WORDS = ["使用", "语言", "模型", "中国人", "有没有", "龘用", "使龘言"]
CHARACTERS = "使用语言模型中国人有没我"  # 龘 is not in the vocabulary, and 我 has no marked form
TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "##b",
    ",",
    *CHARACTERS,
    *(f"##{c}" for c in CHARACTERS[:-1]),
]


def cut(text: str, HMM: bool) -> list[str]:
    """The longest words of the list, from left to right."""
    assert not HMM
    words = []
    while text:
        word = next((word for word in sorted(WORDS, key=len, reverse=True) if text.startswith(word)), text[0])
        words.append(word)
        text = text[len(word) :]
    return words


@pytest.fixture(autouse=True)
def segmenter(monkeypatch: pytest.MonkeyPatch) -> None:
    jieba: Any = ModuleType("jieba")
    jieba.lcut = cut
    jieba.setLogLevel = lambda level: None
    monkeypatch.setitem(sys.modules, "jieba", jieba)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(TOKENS), encoding="utf-8")
    return path


def load(path: Path, **settings: Any) -> Tokenizer:
    settings = {"chinese_whole_words": True, "lower_case": True, **settings}
    tokenizer = load_tokenizer(TokenizerConfig(kind="wordpiece", vocab=str(path), **settings))
    assert tokenizer is not None
    return tokenizer


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("使用语言模型", "使 ##用 语 ##言 模 ##型"),
        ("中国人有没有", "中 ##国 ##人 有 ##没 ##有"),
        ("使用,语言ab中国人", "使 ##用 , 语 ##言 a ##b 中 ##国 ##人"),
        ("AB使 用", "a ##b 使 用"),  # a space is the border of a word
        ("使\u200b用\x00", "使 ##用"),  # what BERT's cleaning removes is not
        ("[MASK]使用", "[MASK] 使 ##用"),
        ("龘用", "[UNK] 用"),
        ("使龘言", "使 [UNK] 言"),
        ("", ""),
    ],
)
def test_marks(vocabulary: Path, text: str, tokens: str) -> None:
    tokenizer = load(vocabulary)
    assert [tokenizer.token_at(id) for id in tokenizer.encode(text)] == tokens.split()


def test_a_character_without_a_marked_form(vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "WORDS", ["使我用"])
    tokenizer = load(vocabulary)
    assert [tokenizer.token_at(id) for id in tokenizer.encode("使我用")] == ["使", "我", "##用"]


@given(
    st.text(st.sampled_from(CHARACTERS + "龘豈ab,. \n\u200b") | st.characters(codec="utf-8"), max_size=30),
    st.booleans(),
)
def test_without_the_marks_it_is_the_plain_tokenizer(vocabulary: Path, text: str, lower_case: bool) -> None:
    marked, plain = _pair(vocabulary, lower_case)
    ids = marked.encode(text)
    assert marked.unmarked()[ids].tolist() == plain.encode(text)


_PAIRS: dict[bool, tuple[Tokenizer, Tokenizer]] = {}


def _pair(vocabulary: Path, lower_case: bool) -> tuple[Tokenizer, Tokenizer]:
    if lower_case not in _PAIRS:
        plain = load(vocabulary, lower_case=lower_case, chinese_whole_words=False)
        _PAIRS[lower_case] = load(vocabulary, lower_case=lower_case), plain
    return _PAIRS[lower_case]


def test_the_real_vocabulary() -> None:
    if not CHINESE.is_file():
        pytest.skip("the vocabulary of bert-base-chinese is not on this machine")
    tokenizer, plain = load(CHINESE), load(CHINESE, chinese_whole_words=False)
    text = "我们使用语言模型，GPT-2有没有？ Hello"
    ids = tokenizer.encode(text)
    assert [tokenizer.token_at(id) for id in ids[2:8]] == "使 ##用 语 ##言 模 ##型".split()
    assert tokenizer.continuation()[ids].tolist()[2:8] == [False, True] * 3
    assert tokenizer.unmarked()[ids].tolist() == plain.encode(text)
    assert tokenizer.unk_id not in ids


def test_saved_and_loaded_again(vocabulary: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = load(vocabulary, extra_ids=3)
    tokenizer.save(tmp_path)
    again = load_tokenizer_folder(tmp_path)
    assert isinstance(again, WholeWordTokenizer)
    assert again.encode("使用AB") == tokenizer.encode("使用AB")
    assert again.sentinel_ids == tokenizer.sentinel_ids
    plain = load(vocabulary, chinese_whole_words=False)
    exported = AutoTokenizer.from_pretrained(tmp_path)  # transformers knows no marks
    assert exported("使用AB", add_special_tokens=False)["input_ids"] == plain.encode("使用AB")


def test_without_jieba(vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    tokenizer = load(vocabulary)  # training on tokens that were marked before needs no jieba
    assert tokenizer.decode([TOKENS.index("使"), TOKENS.index("##用")]) == "使用"
    with pytest.raises(MachineError, match=r"needs the package jieba(.|\n)*pip install jieba"):
        tokenizer.encode("使用")


def test_a_vocabulary_without_marked_characters(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n中\n国\n##a\n", encoding="utf-8")
    with pytest.raises(DataError, match="no marked Chinese characters"):
        load(tmp_path / "vocab.txt")
