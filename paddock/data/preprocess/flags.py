"""The tokenizers of other systems by the names they have there, and which flags each of them goes with.

Kept free of numpy, since the help page is made from these tables.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from paddock.data.config import TokenizerConfig
from paddock.data.preprocess.job import TokenizerFolder
from paddock.errors import ConfigError, DataError, bad_value

TokenizerType = Literal[
    "GPT2BPETokenizer",
    "BertWordPieceLowerCase",
    "BertWordPieceCase",
    "SentencePieceTokenizer",
    "HuggingFaceTokenizer",
    "GPT2Tokenizer",
    "RobertaTokenizer",
    "BertTokenizer",
    "T5Tokenizer",
]

SPELLINGS: dict[str, tuple[str, ...]] = {
    "json_keys": ("--json-key",),
    "tokenizer_type": ("--tokenizer-name",),
    "vocab_file": ("--vocab",),
    "merge_file": ("--merges-file",),
}
"""Other systems' names of flags, by ours."""

TYPES: dict[str, tuple[str, str]] = {
    "GPT2BPETokenizer": ("--vocab-file vocab.json --merge-file merges.txt", "Megatron-LM, OneFlow-GPT"),
    "GPT2Tokenizer": ("--vocab-file vocab.json --merge-file merges.txt", "LiBai"),
    "RobertaTokenizer": ("--vocab-file vocab.json --merge-file merges.txt", "LiBai"),
    "BertWordPieceLowerCase": ("--vocab-file vocab.txt", "Megatron-LM"),
    "BertWordPieceCase": ("--vocab-file vocab.txt", "Megatron-LM"),
    "BertTokenizer": ("--vocab-file vocab.txt [--do-lower-case]", "LiBai"),
    "SentencePieceTokenizer": ("--tokenizer-model spiece.model", "Megatron-LM"),
    "T5Tokenizer": ("--vocab-file spiece.model", "LiBai; 100 sentinels unless --extra-ids"),
    "HuggingFaceTokenizer": ("--tokenizer-model tokenizer.json, or its folder", "Megatron-LM"),
}
"""What each type of tokenizer is made from, and whose name it is."""

assert set(TYPES) == set(get_args(TokenizerType))


@dataclass(frozen=True)
class TokenizerFlags:
    """What a command line says about the tokenizer."""

    tokenizer_type: str
    vocab_file: str | None = None
    merge_file: str | None = None
    tokenizer_model: str | None = None
    do_lower_case: bool = False
    do_chinese_wwm: bool = False
    extra_ids: int | None = None
    end_of_text: str | None = None


def tokenizer_of(flags: TokenizerFlags) -> TokenizerConfig | TokenizerFolder:
    """The tokenizer that the flags describe; an error if one is missing, or would be ignored."""
    kind = flags.tokenizer_type
    if kind in ("GPT2BPETokenizer", "GPT2Tokenizer", "RobertaTokenizer"):
        _allow(flags, "vocab_file", "merge_file")
        ends = flags.end_of_text or ("</s>" if kind == "RobertaTokenizer" else None)
        vocab, merges = _need(flags, "vocab_file"), _need(flags, "merge_file")
        return TokenizerConfig(kind="gpt2", vocab=vocab, merges=merges, end_of_text=ends)
    if kind.startswith("Bert"):
        always_cased = kind == "BertWordPieceCase"
        lower_case = () if always_cased else ("do_lower_case",)
        _allow(flags, "vocab_file", "do_chinese_wwm", "extra_ids", *lower_case)
        return TokenizerConfig(
            kind="wordpiece",
            vocab=_need(flags, "vocab_file"),
            lower_case=flags.do_lower_case or kind == "BertWordPieceLowerCase",
            chinese_whole_words=flags.do_chinese_wwm,
            extra_ids=flags.extra_ids,
            end_of_text=flags.end_of_text,
        )
    if kind in ("SentencePieceTokenizer", "T5Tokenizer"):
        file = "vocab_file" if flags.tokenizer_model is None and flags.vocab_file else "tokenizer_model"
        _allow(flags, file, "extra_ids")
        # Megatron-LM adds no sentinels unless asked to; LiBai adds T5's.
        extra_ids = 0 if flags.extra_ids is None and kind == "SentencePieceTokenizer" else flags.extra_ids
        model = _need(flags, file)
        return TokenizerConfig(kind="sentencepiece", model=model, extra_ids=extra_ids, end_of_text=flags.end_of_text)
    _allow(flags, "tokenizer_model")
    return _hugging_face(Path(_need(flags, "tokenizer_model")), flags.end_of_text)


def spelling_page() -> str:
    """The tables, as text for the help page."""
    lines = ["", "tokenizers, by the names they have in other systems:"]
    lines += [f"  {name:<23} {files:<49} {whose}" for name, (files, whose) in TYPES.items()]
    lines += ["", "other spellings that work here too (and _ instead of - everywhere):"]
    lines += [f"  {' '.join(others):<23} {_flag(name)}" for name, others in SPELLINGS.items()]
    return "\n".join(lines)


def _hugging_face(path: Path, end_of_text: str | None) -> TokenizerConfig | TokenizerFolder:
    if os.path.isdir(path):
        return TokenizerFolder(path, end_of_text)
    if not os.path.isfile(path):
        raise DataError(
            f"there is no tokenizer {path}",
            why="nothing is downloaded, so a name on a hub is not enough",
            fix="give a tokenizer.json, or a folder that holds one",
        )
    # The settings beside the file name the token that ends a text.
    return (
        TokenizerFolder(path.parent, end_of_text)
        if path.name == "tokenizer.json"
        else TokenizerConfig(kind="file", path=str(path), end_of_text=end_of_text)
    )


def _need(flags: TokenizerFlags, name: str) -> str:
    value: str | None = getattr(flags, name)
    if value is None:
        kind = flags.tokenizer_type
        raise ConfigError(f"--tokenizer-type {kind} needs {_flag(name)}", fix=f"it is made from {TYPES[kind][0]}")
    return value


def _allow(flags: TokenizerFlags, *names: str) -> None:
    """An error for every flag that this type would ignore."""
    optional: dict[str, Any] = {name: value for name, value in vars(flags).items() if value not in (None, False)}
    for name, value in optional.items():
        if name not in ("tokenizer_type", "end_of_text", *names):
            shown = "" if value is True else value
            kind = flags.tokenizer_type
            raise bad_value(
                _flag(name), shown, f"--tokenizer-type {kind} would ignore it", f"{kind} goes with {TYPES[kind][0]}"
            )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
