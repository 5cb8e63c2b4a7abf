"""A WordPiece vocabulary small enough to read: letters, some words, some accents and some Chinese."""

from __future__ import annotations

import string
from pathlib import Path

from paddock.data.config import TokenizerConfig
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.data.tokenizers.load import load_tokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("berlin", "the", "is", "in", "capital", "of", "who", "where", "germany", "##ing", "##s")
CHINESE = tuple("中国北京首都是哪里")


def write_vocabulary(folder: Path) -> Path:
    """Write it as a vocab.txt; returns the file."""
    characters = (*string.ascii_letters, *string.digits, *string.punctuation, *"éüß", *CHINESE)
    lines = [*SPECIAL, *characters, *(f"##{character}" for character in characters), *WORDS]
    path = folder / "vocab.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def word_tokenizer(folder: Path, lower_case: bool = True) -> EngineTokenizer:
    """The tokenizer of that vocabulary."""
    found = load_tokenizer(
        TokenizerConfig(kind="wordpiece", vocab=str(write_vocabulary(folder)), lower_case=lower_case)
    )
    assert isinstance(found, EngineTokenizer)
    return found
