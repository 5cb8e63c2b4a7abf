"""Tokenizing word by word gives what tokenizing the whole text gives, whatever the text."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.config import TokenizerConfig
from paddock.data.preprocess.words import Border, WordCache, find_border
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer, train_tokenizer

CONTROLS = [chr(code) for code in range(32)] + ["\x7f", "\x85", "\u200b", "\ufeff", "\u180e"]
SPACES = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
PIECES = [*"aé!'1-_", "中", "文", "。", "'s", "'ll", "\u0301", "ﬁ", "🙂", "<|endoftext|>", "[SEP]", "İ", "Σ"]
TEXTS = st.lists(st.sampled_from([*CONTROLS, *SPACES, *(" " * 8), *"\n\n\t", *(PIECES * 3)]), max_size=40).map("".join)


def load(config: TokenizerConfig) -> Tokenizer:
    tokenizer = load_tokenizer(config)
    assert tokenizer is not None
    return tokenizer


def memory_of(tokenizer: Tokenizer, limit: int) -> WordCache:
    border = find_border(tokenizer)
    assert border is not None
    return WordCache(tokenizer, border, np.dtype("<u2"), limit)


def ids(memory: WordCache, *texts: str) -> list[list[int]]:
    return [np.frombuffer(tokens, "<u2").tolist() for tokens in memory.encode(list(texts))]


@pytest.fixture(scope="module", params=["gpt2", "bert", "bert cased"])
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, WordCache]:
    config = request.getfixturevalue(request.param.split()[0])
    tokenizer = load(config.model_copy(update={"lower_case": False}) if "cased" in request.param else config)
    return tokenizer, memory_of(tokenizer, limit=200)


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(st.one_of(TEXTS, st.text(max_size=40)), max_size=4))
def test_the_same_tokens(pair: tuple[Tokenizer, WordCache], texts: list[str]) -> None:
    tokenizer, memory = pair
    assert ids(memory, *texts) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("space", [*SPACES, *CONTROLS], ids=ascii)
def test_every_kind_of_white_space(pair: tuple[Tokenizer, WordCache], space: str) -> None:
    tokenizer, memory = pair
    texts = [
        f"a{space}b",
        f"!{space}!",
        f"a {space} b",
        f"a{space}\n{space}b",
        f"{space}a{space}",
        f"1{space} {space}.",
    ]
    assert ids(memory, *texts) == tokenizer.encode_batch(texts)


def test_it_forgets_old_words(gpt2: TokenizerConfig) -> None:
    tokenizer = load(gpt2)
    memory = memory_of(tokenizer, limit=100)
    for number in range(200):
        text = f"word {number} number-{number} <|endoftext|>{number}"
        assert ids(memory, text) == [tokenizer.encode(text)]
        assert sum(map(len, memory)) <= 140 and sum(map(len, memory._older)) <= 140
    assert " number-199" in memory and " number-100" not in memory and "word" in memory


def test_every_word_is_tokenized_once(gpt2: TokenizerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load(gpt2)
    memory = memory_of(tokenizer, limit=10_000)
    asked: list[str] = []
    real = tokenizer.encode_batch
    monkeypatch.setattr(tokenizer, "encode_batch", lambda texts: (asked.extend(texts), real(texts))[1])
    texts = [" one two three", " two three four", " four one"]
    assert ids(memory, *texts) == real(texts) == ids(memory, *texts)
    assert sorted("".join(asked).replace("<|endoftext|>", "").split()) == ["four", "one", "three", "two"]


def test_which_tokenizers_read_words_apart(gpt2: TokenizerConfig, bert: TokenizerConfig, tmp_path: Path) -> None:
    from tokenizers import AddedToken, normalizers, pre_tokenizers

    assert find_border(load(gpt2)) == Border("<|endoftext|>", 0)
    assert find_border(load(bert)) == Border("[PAD]", 0)
    assert find_border(train_tokenizer(["some text"], 300)) == Border("<|endoftext|>", 0)
    for change in (
        lambda engine: setattr(engine, "normalizer", normalizers.NFC()),
        lambda engine: setattr(engine, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
        lambda engine: setattr(
            engine, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        ),
        lambda engine: setattr(engine, "pre_tokenizer", pre_tokenizers.Metaspace()),
        lambda engine: engine.add_special_tokens([AddedToken("<x>", rstrip=True)]),
        lambda engine: engine.add_tokens(["two words"]),
        lambda engine: engine.enable_truncation(10),
    ):
        changed = train_tokenizer(["some text"], 300)
        change(changed.engine)
        assert find_border(changed) is None


def test_the_real_vocabularies() -> None:
    shared = Path(__file__).parents[4] / "shared" / "data"
    if not shared.is_dir():
        pytest.skip("the vocabularies of GPT-2 and BERT are not on this machine")
    folder = shared / "tokenizers"
    gpt2 = TokenizerConfig(
        kind="gpt2", vocab=str(folder / "gpt2" / "vocab.json"), merges=str(folder / "gpt2" / "merges.txt")
    )
    for config in (
        gpt2,
        TokenizerConfig(kind="wordpiece", vocab=str(folder / "bert_base_uncased" / "vocab.txt"), lower_case=True),
        TokenizerConfig(kind="wordpiece", vocab=str(folder / "bert_base_chinese" / "vocab.txt")),
    ):
        tokenizer = load(config)
        memory = memory_of(tokenizer, limit=1 << 20)
        for name in ("tinyshakespeare.txt", "wikitext2_test.txt", "sanguoyanyi_zh.txt"):
            text = (shared / "text" / name).read_text()[:50_000]
            assert ids(memory, text) == [tokenizer.encode(text)]
