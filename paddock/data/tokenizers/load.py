"""Tokenizers: from a recipe or a folder, learned from text, and whether one fits a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from paddock.data.cache import build_folder, cache_folder, fingerprint_name
from paddock.data.config import DataConfig, TokenizerConfig
from paddock.data.tokenizers.chinese import WholeWordTokenizer
from paddock.data.tokenizers.engine import (
    FILE_NAME,
    EngineTokenizer,
    read_bpe,
    read_engine,
    read_wordpiece,
    train_bpe,
    train_wordpiece,
)
from paddock.data.tokenizers.interface import CONFIG_NAME, USUAL_NAMES, Tokenizer, read_settings
from paddock.data.tokenizers.sentencepiece import MODEL_NAME, SentencePieceTokenizer
from paddock.errors import ConfigError, DataError, UserError, bad_value
from paddock.models.config import ModelConfig
from paddock.objects.fetch import local_path

__all__ = ["Tokenizer", "check_fits", "load_tokenizer", "load_tokenizer_folder", "train_tokenizer"]

END_OF_TEXT = "<|endoftext|>"


def train_tokenizer(
    texts: Iterable[str], vocab: int, end_of_text: str | None = None, extra_ids: int = 0, pads: bool = False
) -> EngineTokenizer:
    """Learn a byte-level BPE, GPT-2's kind, from text."""
    return train_bpe(texts, vocab, end_of_text or END_OF_TEXT, extra_ids, pads)


def load_tokenizer(config: TokenizerConfig) -> Tokenizer | None:
    """The tokenizer that a recipe's files describe; None where the recipe has none, or has yet to learn it."""
    if config.kind == "file":
        assert config.path is not None
        return EngineTokenizer(read_engine(local_path(config.path)), config.end_of_text)
    if config.kind == "folder":
        assert config.path is not None
        found = load_tokenizer_folder(local_path(config.path), config.end_of_text)
        if found is None:
            raise DataError(f"there is no tokenizer in {config.path}", fix="check --tokenizer.path")
        return found
    if config.kind == "gpt2":
        assert config.vocab is not None and config.merges is not None
        return read_bpe(local_path(config.vocab), local_path(config.merges), config.end_of_text)
    if config.kind == "wordpiece":
        assert config.vocab is not None
        engine = read_wordpiece(local_path(config.vocab), config.lower_case, config.extra_ids or 0)
        has_end = bool(config.extra_ids) and engine.token_to_id("[EOS]") is not None
        usual = "[EOS]" if has_end else "[SEP]"
        return _choose(config.chinese_whole_words)(engine, config.end_of_text or usual)
    if config.kind == "sentencepiece":
        assert config.model is not None
        return SentencePieceTokenizer(local_path(config.model), config.extra_ids, config.end_of_text)
    return None


def load_tokenizer_folder(folder: Path, end_of_text: str | None = None) -> Tokenizer | None:
    """The tokenizer in a run directory, a prepared corpus or a Hugging Face folder, if there is one."""
    settings = read_settings(folder / CONFIG_NAME)
    named = {part: name for part in ("pad", "cls", "sep", "mask", "unk") if (name := settings.token(part))}
    end_of_text = end_of_text or settings.token("eos")
    whole_words = _choose(bool(settings.chinese_whole_words))
    if os.path.isfile(folder / FILE_NAME):
        return whole_words(read_engine(folder / FILE_NAME), end_of_text, named)
    if os.path.isfile(folder / "merges.txt") and os.path.isfile(folder / "vocab.json"):
        return read_bpe(folder / "vocab.json", folder / "merges.txt", end_of_text, named)
    if os.path.isfile(folder / MODEL_NAME):
        return SentencePieceTokenizer(folder / MODEL_NAME, settings.extra_ids, end_of_text)
    if os.path.isfile(folder / "vocab.txt"):
        return whole_words(read_wordpiece(folder / "vocab.txt", settings.is_uncased), end_of_text or "[SEP]", named)
    return None


def text_tokenizer(
    data: DataConfig,
    config: TokenizerConfig,
    vocab: int,
    texts: Callable[[], list[str]],
    parts: Collection[str] = ("cls", "sep", "pad"),
) -> EngineTokenizer:
    """The recipe's tokenizer, one that has these special tokens and knows where each token lies in the text."""
    tokenizer: Tokenizer | None = load_tokenizer(config)
    if config.kind == "trained":
        found = texts()
        learned = ("wordpiece 2", found, vocab)
        tokenizer = learned_tokenizer(data, config, learned, lambda: train_wordpiece(found, vocab))
    if not isinstance(tokenizer, EngineTokenizer):
        raise ConfigError(
            f"tokenizer.kind = {config.kind}",
            why="this task reads text, and needs to know where in it each token lies",
            fix="set --tokenizer.kind wordpiece with --tokenizer.vocab, or file, or trained",
        )
    check_fits(tokenizer, vocab, parts=parts)
    return tokenizer


def check_fits(tokenizer: Tokenizer, vocab: int, *, parts: Collection[str] = (), sentinels: int = 0) -> None:
    """Whether a model of `vocab` tokens can be trained with this tokenizer, by a task that needs these special
    tokens (end_of_text, pad, cls, sep, mask, unk) and this many sentinels."""
    if tokenizer.vocab_size > vocab:
        raise ConfigError(
            f"model.vocab = {vocab}",
            why=f"the tokenizer has {tokenizer.vocab_size} tokens",
            fix=f"set --model.vocab {tokenizer.vocab_size}; or, for weights that are trained already, "
            "take the tokenizer that they came with",
        )
    for part in parts:
        if tokenizer.special_id(part) is None:
            usual = " or ".join(USUAL_NAMES[part])
            raise ConfigError(
                f"the tokenizer has no {part.replace('_', ' ')} token",
                why=f"this task needs one, and its vocabulary of {tokenizer.vocab_size} has no {usual}",
                fix="set --tokenizer.end-of-text" if part == "end_of_text" else "use a tokenizer that has one",
            )
    if len(tokenizer.sentinel_ids) < sentinels:
        raise ConfigError(
            f"the tokenizer has {len(tokenizer.sentinel_ids)} sentinels, which are too few",
            why=f"this task needs {sentinels}: <extra_id_0> to <extra_id_{sentinels - 1}>",
            fix=f"set --tokenizer.extra-ids {max(sentinels, 100)}; a tokenizer in a file or folder has its own",
        )


def check_start(tokenizer: Tokenizer, model: ModelConfig) -> None:
    """The decoder's first token must be one of the tokenizer's: in Paddock's models it may be any, T5's is its pad."""
    start = model.start_token()
    if start is not None and start < tokenizer.vocab_size and tokenizer.token_at(start):
        return
    usual = tokenizer.pad_id
    raise bad_value(
        "model.decoder_start",
        start,
        f"a decoder begins with a token, and the tokenizer has none of this id among its {tokenizer.vocab_size}",
        f"set --model.decoder-start {usual} ({tokenizer.special['pad']})",
    )


def _choose(whole_words: bool) -> type[EngineTokenizer]:
    return WholeWordTokenizer if whole_words else EngineTokenizer


def learned_tokenizer(
    data: DataConfig,
    config: TokenizerConfig,
    ingredients: tuple[object, ...],
    learn: Callable[[], EngineTokenizer],
) -> EngineTokenizer:
    """What `learn` learns of these ingredients, their name first: kept for next time."""
    found = load_tokenizer_folder(learned_folder(data, ingredients, learn), config.end_of_text)
    assert isinstance(found, EngineTokenizer)
    return found


def learned_folder(data: DataConfig, ingredients: tuple[object, ...], learn: Callable[[], EngineTokenizer]) -> Path:
    """Where that tokenizer is kept."""
    folder = cache_folder(data) / fingerprint_name(*ingredients)
    build_folder(folder, lambda partial: learn().save(partial))
    try:
        load_tokenizer_folder(folder)
    except UserError as error:
        raise DataError(f"the tokenizer in {folder} is damaged", why=str(error), fix=f"remove {folder}") from None
    return folder
