"""Tokenizing word by word gives what tokenizing the whole text gives, whatever the text."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.config import TokenizerConfig
from paddock.data.preprocess.words import WordMemory, reads_words_apart
from paddock.data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer

CONTROLS = [chr(code) for code in range(32)] + ["\x7f", "\x85", "\u200b", "\ufeff", "\u180e"]
SPACES = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
PIECES = [*"aé!'1-_", "中", "文", "。", "'s", "'ll", "\u0301", "ﬁ", "🙂", "<|endoftext|>", "[SEP]", "İ", "Σ"]
TEXTS = st.lists(st.sampled_from([*CONTROLS, *SPACES, *(" " * 8), *"\n\n\t", *(PIECES * 3)]), max_size=40).map("".join)


def load(config: TokenizerConfig) -> Tokenizer:
    tokenizer = load_tokenizer(config)
    assert tokenizer is not None
    return tokenizer


@pytest.fixture(scope="module", params=["gpt2", "bert", "bert cased"])
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, WordMemory]:
    config = request.getfixturevalue(request.param.split()[0])
    tokenizer = load(config.model_copy(update={"lower_case": False}) if "cased" in request.param else config)
    return tokenizer, WordMemory(tokenizer, np.dtype("<u2"), limit=50, longest=6)


@settings(max_examples=300, deadline=None)
@given(text=st.one_of(TEXTS, st.text(max_size=40)))
def test_the_same_tokens(pair: tuple[Tokenizer, WordMemory], text: str) -> None:
    tokenizer, memory = pair
    assert np.frombuffer(memory.encode(text), "<u2").tolist() == tokenizer.encode(text)


@pytest.mark.parametrize("space", [*SPACES, *CONTROLS], ids=ascii)
def test_every_kind_of_white_space(pair: tuple[Tokenizer, WordMemory], space: str) -> None:
    tokenizer, memory = pair
    for text in (
        f"a{space}b",
        f"!{space}!",
        f"a {space} b",
        f"a{space}\n{space}b",
        f"{space}a{space}",
        f"1{space} {space}.",
    ):
        assert np.frombuffer(memory.encode(text), "<u2").tolist() == tokenizer.encode(text)


def test_it_forgets_old_words_and_never_keeps_long_ones(gpt2: TokenizerConfig) -> None:
    memory = WordMemory(load(gpt2), np.dtype("<u2"), limit=10, longest=8)
    for number in range(100):
        memory.encode(f"word {number} {'long' * 20}")
    assert len(memory) <= 10 and len(memory._older) <= 10
    assert " 99" in memory and not any(len(word) > 8 for word in memory)


def test_which_tokenizers_read_words_apart(gpt2: TokenizerConfig, bert: TokenizerConfig, tmp_path: Path) -> None:
    from tokenizers import AddedToken, normalizers, pre_tokenizers

    assert reads_words_apart(load(gpt2)) and reads_words_apart(load(bert))
    trained = train_tokenizer(["some text"], 300)
    assert reads_words_apart(trained)
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
        assert not reads_words_apart(changed)


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
        assert reads_words_apart(tokenizer)
        memory = WordMemory(tokenizer, np.dtype("<u2"))
        for name in ("tinyshakespeare.txt", "wikitext2_test.txt", "sanguoyanyi_zh.txt"):
            text = (shared / "text" / name).read_text()[:50_000]
            assert np.frombuffer(memory.encode(text), "<u2").tolist() == tokenizer.encode(text)
