"""The tokenizer of a task that reads plain text: from files, or a WordPiece learned from that text and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path

from paddock.data.config import DataConfig, TokenizerConfig
from paddock.data.prepare import build_folder, cache_folder
from paddock.data.tokenizer import check_fits, load_tokenizer, load_tokenizer_folder
from paddock.data.tokenizers.engine import EngineTokenizer, train_wordpiece
from paddock.errors import ConfigError, DataError, UserError


def text_tokenizer(
    data: DataConfig,
    config: TokenizerConfig,
    vocab: int,
    texts: Callable[[], list[str]],
    parts: Collection[str] = ("cls", "sep", "pad"),
) -> EngineTokenizer:
    """The recipe's tokenizer, one that has these special tokens and knows where each token lies in the text."""
    tokenizer = _learned(data, config, vocab, texts()) if config.kind == "trained" else load_tokenizer(config)
    if not isinstance(tokenizer, EngineTokenizer):
        raise ConfigError(
            f"tokenizer.kind = {config.kind}",
            why="this task reads text, and needs to know where in it each token lies",
            fix="set --tokenizer.kind wordpiece with --tokenizer.vocab, or file, or trained",
        )
    check_fits(tokenizer, vocab, parts=parts)
    return tokenizer


def _learned(data: DataConfig, config: TokenizerConfig, vocab: int, texts: list[str]) -> EngineTokenizer:
    fingerprint = hashlib.sha256(repr(("wordpiece 2", texts, vocab)).encode()).hexdigest()[:16]
    folder = cache_folder(data) / f"wordpiece-{fingerprint}"
    build_folder(folder, lambda partial: train_wordpiece(texts, vocab).save(partial))
    try:
        found = load_tokenizer_folder(Path(folder), config.end_of_text)
    except UserError as error:
        raise DataError(f"the tokenizer in {folder} is damaged", why=str(error), fix=f"remove {folder}") from None
    assert isinstance(found, EngineTokenizer)
    return found
