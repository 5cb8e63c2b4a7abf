"""The tokenizers of other systems, by their names and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.data.config import TokenizerConfig
from paddock.data.preprocess.flags import TYPES, TokenizerFlags, tokenizer_of
from paddock.data.preprocess.job import TokenizerFolder
from paddock.errors import ConfigError, DataError

BPE = {"vocab_file": "v", "merge_file": "m"}


@pytest.mark.parametrize(
    ("flags", "config"),
    [
        ({"tokenizer_type": "GPT2BPETokenizer", **BPE}, {"kind": "gpt2", "vocab": "v", "merges": "m"}),
        ({"tokenizer_type": "GPT2Tokenizer", **BPE}, {"kind": "gpt2", "vocab": "v", "merges": "m"}),
        (
            {"tokenizer_type": "GPT2Tokenizer", **BPE, "end_of_text": "<e>"},
            {"kind": "gpt2", "vocab": "v", "merges": "m", "end_of_text": "<e>"},
        ),
        (
            {"tokenizer_type": "RobertaTokenizer", **BPE},
            {"kind": "gpt2", "vocab": "v", "merges": "m", "end_of_text": "</s>"},
        ),
        (
            {"tokenizer_type": "BertWordPieceLowerCase", "vocab_file": "v"},
            {"kind": "wordpiece", "vocab": "v", "lower_case": True},
        ),
        (
            {"tokenizer_type": "BertWordPieceLowerCase", "vocab_file": "v", "do_lower_case": True},
            {"kind": "wordpiece", "vocab": "v", "lower_case": True},
        ),
        ({"tokenizer_type": "BertWordPieceCase", "vocab_file": "v"}, {"kind": "wordpiece", "vocab": "v"}),
        ({"tokenizer_type": "BertTokenizer", "vocab_file": "v"}, {"kind": "wordpiece", "vocab": "v"}),
        (
            {
                **{"tokenizer_type": "BertTokenizer", "vocab_file": "v", "do_lower_case": True},
                **{"do_chinese_wwm": True, "extra_ids": 100},
            },
            {
                **{"kind": "wordpiece", "vocab": "v", "lower_case": True},
                **{"chinese_whole_words": True, "extra_ids": 100},
            },
        ),
        (
            {"tokenizer_type": "SentencePieceTokenizer", "tokenizer_model": "s"},
            {"kind": "sentencepiece", "model": "s", "extra_ids": 0},
        ),
        (
            {"tokenizer_type": "SentencePieceTokenizer", "tokenizer_model": "s", "extra_ids": 9},
            {"kind": "sentencepiece", "model": "s", "extra_ids": 9},
        ),
        ({"tokenizer_type": "T5Tokenizer", "vocab_file": "s"}, {"kind": "sentencepiece", "model": "s"}),
        ({"tokenizer_type": "T5Tokenizer", "tokenizer_model": "s"}, {"kind": "sentencepiece", "model": "s"}),
    ],
)
def test_every_type(flags: dict[str, Any], config: dict[str, Any]) -> None:
    assert tokenizer_of(TokenizerFlags(**flags)) == TokenizerConfig(**config)


def test_hugging_face_files(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "other.json"):
        (tmp_path / name).write_text("{}")

    def of(path: Path) -> object:
        return tokenizer_of(TokenizerFlags("HuggingFaceTokenizer", tokenizer_model=str(path)))

    assert of(tmp_path) == of(tmp_path / "tokenizer.json") == TokenizerFolder(tmp_path)
    assert of(tmp_path / "other.json") == TokenizerConfig(kind="file", path=str(tmp_path / "other.json"))
    with pytest.raises(DataError, match="no tokenizer meta-llama/Llama-3(.|\n)*nothing is downloaded"):
        of(Path("meta-llama/Llama-3"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"tokenizer_type": "GPT2BPETokenizer"}, "GPT2BPETokenizer needs --vocab-file"),
        ({"tokenizer_type": "GPT2BPETokenizer", "vocab_file": "v"}, "needs --merge-file(.|\n)*merges.txt"),
        ({"tokenizer_type": "BertTokenizer"}, "needs --vocab-file"),
        ({"tokenizer_type": "SentencePieceTokenizer"}, "needs --tokenizer-model"),
        ({"tokenizer_type": "HuggingFaceTokenizer"}, "needs --tokenizer-model"),
        ({"tokenizer_type": "GPT2BPETokenizer", **BPE, "tokenizer_model": "s"}, "--tokenizer-model = s(.|\n)*ignore"),
        ({"tokenizer_type": "GPT2BPETokenizer", **BPE, "do_lower_case": True}, "--do-lower-case(.|\n)*ignore"),
        ({"tokenizer_type": "GPT2BPETokenizer", **BPE, "extra_ids": 1}, "--extra-ids = 1(.|\n)*ignore"),
        ({"tokenizer_type": "BertWordPieceCase", "vocab_file": "v", "do_lower_case": True}, "--do-lower-case"),
        ({"tokenizer_type": "BertTokenizer", "vocab_file": "v", "merge_file": "m"}, "--merge-file = m"),
        ({"tokenizer_type": "T5Tokenizer", "vocab_file": "v", "tokenizer_model": "s"}, "--vocab-file = v"),
        ({"tokenizer_type": "T5Tokenizer", "vocab_file": "v", "do_chinese_wwm": True}, "--do-chinese-wwm"),
    ],
)
def test_flags_that_do_not_go_together(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tokenizer_of(TokenizerFlags(**flags))


def test_the_table_is_complete() -> None:
    for name in TYPES:
        with pytest.raises((ConfigError, DataError)):
            tokenizer_of(TokenizerFlags(name))
