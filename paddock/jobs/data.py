"""`paddock data`: joining corpora and checking them, with progress; the tokenizer to look into one with, and what a
task makes of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.data.config import SpanConfig, TokenizerConfig
from paddock.data.indexed.merging import Merger, plan_merge, prefixes_in
from paddock.data.indexed.reader import corpus_files
from paddock.data.indexed.verification import Verification, verify
from paddock.data.tokenizers.load import Tokenizer, load_tokenizer, load_tokenizer_folder
from paddock.data.tokenizers.remembered import remembered_tokenizer
from paddock.errors import ConfigError, DataError, bad_value, did_you_mean
from paddock.telemetry.screen.terminal import byte_progress_bar

if TYPE_CHECKING:
    from paddock.tasks.span_preview import SpanPreview


@dataclass(frozen=True)
class TokenizerFiles:
    """The files that a user names; all may be missing."""

    tokenizer: Path | None = None
    vocab_file: Path | None = None
    merge_file: Path | None = None
    tokenizer_model: Path | None = None
    extra_ids: int | None = None
    """Sentinels to add to the vocabulary."""


def find_tokenizer(prefix: str, files: TokenizerFiles) -> Tokenizer | None:
    """The tokenizer of the named files, or the one that the corpus remembers, or that lies beside it; None if there is
    none."""
    extra = files.extra_ids
    ways = [files.tokenizer, files.vocab_file or files.merge_file, files.tokenizer_model]
    if sum(way is not None for way in ways) > 1:
        raise ConfigError("more than one tokenizer is named", fix="give the files of one")
    if files.tokenizer is not None:
        if not os.path.isdir(files.tokenizer):
            return load_tokenizer(TokenizerConfig(kind="file", path=str(files.tokenizer), extra_ids=extra))
        _no_extra_ids(extra)
        tokenizer = load_tokenizer_folder(files.tokenizer)
        if tokenizer is None:
            raise DataError(f"there is no tokenizer in {files.tokenizer}", fix="name its file")
        return tokenizer
    if files.merge_file is not None:
        if files.vocab_file is None:
            raise ConfigError("--merge-file needs --vocab-file", fix="add --vocab-file FILE")
        settings = TokenizerConfig(
            kind="gpt2", vocab=str(files.vocab_file), merges=str(files.merge_file), extra_ids=extra
        )
        return load_tokenizer(settings)
    if files.vocab_file is not None:
        return load_tokenizer(TokenizerConfig(kind="wordpiece", vocab=str(files.vocab_file), extra_ids=extra))
    if files.tokenizer_model is not None:
        model = str(files.tokenizer_model)
        return load_tokenizer(TokenizerConfig(kind="sentencepiece", model=model, extra_ids=extra))
    _no_extra_ids(extra)
    return remembered_tokenizer(prefix) or load_tokenizer_folder(Path(prefix).parent)


def _no_extra_ids(extra: int | None) -> None:
    if extra is not None:
        raise bad_value(
            "--extra-ids",
            extra,
            "a tokenizer in a folder says itself how many sentinels it has",
            "leave it out, or name the tokenizer's file: --vocab-file or --tokenizer-model",
        )


def preview_task(
    prefix: str, task: str, tokenizer: Tokenizer | None, settings: Mapping[str, Any], count: int, seed: int
) -> list[SpanPreview]:
    """What a task makes of some passages of a corpus; `settings` are fields of its data section."""
    from paddock.tasks.span_preview import preview_spans

    if task != "span_corruption":
        why = "what it makes of a corpus cannot be shown"
        raise bad_value("--task", task, why, did_you_mean(task, ["span_corruption"]))
    corpus_files(prefix)
    if tokenizer is None:
        raise ConfigError(
            "--task needs a tokenizer",
            why=f"none is named, and there is none beside {prefix}",
            fix="name the one that the corpus was made with: --tokenizer, --tokenizer-model or --vocab-file",
        )
    return preview_spans(prefix, SpanConfig(**settings), tokenizer, count, seed)


def merge_corpora(prefixes: list[str], folder: Path | None, output: str, overwrite: bool) -> Merger:
    """Join corpora, and all of a folder, into one, showing how far it is."""
    plan = plan_merge(prefixes + (prefixes_in(folder) if folder is not None else []), output, overwrite)
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    with byte_progress_bar("merging", plan.num_bytes) as progress:
        plan.run(progress)
    return plan


def verify_corpora(prefixes: list[str], vocab_size: int | None) -> list[Verification]:
    """Check corpora one after the other, showing how far it is."""
    if not prefixes:
        raise ConfigError("there is nothing to verify", fix="name the prefixes of one corpus or more")
    if vocab_size is not None and vocab_size < 1:
        raise bad_value("--vocab-size", vocab_size, "a vocabulary has at least one token")
    files = [Path(f"{prefix}{suffix}") for prefix in prefixes for suffix in (".bin", ".idx")]
    total = sum(path.stat().st_size for path in files if os.path.isfile(path))
    with byte_progress_bar("verifying", total) as progress:
        return [verify(prefix, vocab_size, progress) for prefix in prefixes]


def raise_if_broken(reports: list[Verification]) -> None:
    """The error of corpora in which something was found."""
    broken = [report for report in reports if not report.sound]
    if broken:
        error = DataError(
            f"{len(broken)} of {len(reports)} corpora {'is' if len(broken) == 1 else 'are'} broken",
            why="; ".join(report.prefix for report in broken),
            fix="copy or preprocess again; `paddock data merge` rewrites one that only has gaps or unused bytes",
        )
        error.follows_result = True
        raise error
