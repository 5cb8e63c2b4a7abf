"""Making a corpus ready before processes start: text becomes a tokenizer and indexed files, kept for next time.

A folder's name is a fingerprint of everything that went in, and it appears only when complete: one process prepares a
corpus, others that want the same wait for it, and a finished one is never rebuilt.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paddock.data.blend_path import parse_blend
from paddock.data.cache import build_folder, cache_folder, fingerprint_name
from paddock.data.config import TextDocument, TokenizerConfig, TokensConfig
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language.embedded import EmbeddedTexts
from paddock.data.language.text_files import TextFiles
from paddock.data.preprocess.encoding import open_tokenizer
from paddock.data.preprocess.job import PreprocessJob, TokenizerFolder
from paddock.data.preprocess.run import Snapshot, Watch, preprocess
from paddock.data.tokenizers.engine import EngineTokenizer, train_wordpiece
from paddock.data.tokenizers.load import Tokenizer, check_fits, learned_folder, load_tokenizer, train_tokenizer
from paddock.data.tokenizers.remembered import check_tokenizer, remembered_tokenizer
from paddock.errors import DataError, UserError, bad_value
from paddock.objects.fetch import local_path
from paddock.telemetry.screen.terminal import byte_progress_bar, print_line, stderr_console


@dataclass(frozen=True)
class PreparedCorpus:
    """Corpora that are ready to be read: the weight and the prefix of each (none: synthetic), and their tokenizer."""

    prefixes: list[tuple[float | None, Path]]
    tokenizer: Tokenizer | None
    classes: tuple[str, ...] = ()


class Texts(Protocol):
    """Documents that can be read again and again."""

    @property
    def document(self) -> TextDocument: ...

    @property
    def json_key(self) -> str: ...

    @property
    def digest(self) -> str:
        """Of all that decides which documents they are."""

    def describe(self) -> str:
        """What they are, for people; empty, where nobody needs to be told. Whatever cannot be used is an error."""

    def texts(self) -> Iterator[str]: ...

    def inputs(self, folder: Path) -> tuple[str, ...]:
        """The files that hold them, made in this folder if need be."""

    def check_unchanged(self) -> None:
        """An error, if they are no longer what they were."""


def prepare(
    data: TokensConfig, tokenizer: TokenizerConfig, vocab: int, check: Callable[[Tokenizer], object] = lambda _: None
) -> PreparedCorpus:
    """Find or build the corpus, and check that the tokenizer fits the model; and by `check`, that it fits the task."""
    if data.source == "text":
        return _prepare_text(TextFiles.find(data), data, tokenizer, vocab, check)
    if data.source == "embedded":
        return _prepare_text(EmbeddedTexts(), data, tokenizer, vocab, check)
    prepared = _find_corpora(data, tokenizer)
    if prepared.tokenizer is not None:
        check_fits(prepared.tokenizer, vocab)
        check(prepared.tokenizer)
    return prepared


def _find_corpora(data: TokensConfig, config: TokenizerConfig) -> PreparedCorpus:
    """Corpora of tokens that are there, and a tokenizer that is not another than the one they were made with."""
    named = [] if data.source == "synthetic" else parse_blend(data.path or ())
    blend = [(weight, str(local_path(prefix))) for weight, prefix in named]
    for _, prefix in blend:
        if "text" in data.sources() and os.path.isfile(prefix) and not os.path.isfile(f"{prefix}.idx"):
            why = f"it reads PREFIX.bin and PREFIX.idx, and {prefix} is a file by itself"
            raise bad_value("data.source", data.source, why, "if that is text or JSON lines: --data.source text")
        _check_corpus(IndexedTokens(prefix))
    tokenizer = load_tokenizer(config)
    check_tokenizer(tokenizer, [prefix for _, prefix in blend])
    return PreparedCorpus([(weight, Path(prefix)) for weight, prefix in blend], tokenizer)


def _prepare_text(
    texts: Texts, data: TokensConfig, config: TokenizerConfig, vocab: int, check: Callable[[Tokenizer], object]
) -> PreparedCorpus:
    source: TokenizerConfig | TokenizerFolder = config
    if config.kind == "trained":
        source = TokenizerFolder(_learned(texts, data, config, vocab), config.end_of_text)
    tokenizer = open_tokenizer(source)
    in_sentences = data.reads_sentences and data.source == "text"
    check_fits(tokenizer, vocab, parts=() if in_sentences else ["end_of_text"])
    check(tokenizer)
    content = hashlib.sha256(tokenizer.content()).hexdigest()
    kind = f"{data.source} 1" + (", sentences" if in_sentences else "")
    folder = cache_folder(data) / fingerprint_name(kind, texts.digest, content, tokenizer.end_of_text)
    prefix = folder / f"corpus_{texts.json_key}_{'sentence' if in_sentences else 'document'}"
    build_folder(folder, lambda partial: _build(texts, source, partial, folder, in_sentences))
    try:
        _check_corpus(IndexedTokens(prefix))
        return PreparedCorpus([(None, prefix)], remembered_tokenizer(prefix))
    except UserError as error:
        raise DataError(f"the prepared corpus in {folder} is damaged", why=str(error), fix=f"remove {folder}") from None


def _learned(texts: Texts, data: TokensConfig, config: TokenizerConfig, vocab: int) -> Path:
    """Where the tokenizer is kept that is learned from these texts."""
    extra_ids = config.extra_ids or 0

    def learn() -> EngineTokenizer:
        texts.describe()  # which looks at all of it
        if data.learns == "wordpiece":
            learned = train_wordpiece(_Again(texts), vocab)
        else:
            learned = train_tokenizer(texts.texts(), vocab, config.end_of_text, extra_ids)
        texts.check_unchanged()
        return learned

    if data.learns == "wordpiece":
        return learned_folder(data, ("wordpiece 2", texts.digest, vocab), learn)
    return learned_folder(data, ("bpe 1", texts.digest, vocab, config.end_of_text, extra_ids), learn)


@dataclass(frozen=True)
class _Again:
    """Texts that are read anew for whoever goes through them, so that they are never all in memory."""

    texts: Texts

    def __iter__(self) -> Iterator[str]:
        return self.texts.texts()


def _build(
    texts: Texts, tokenizer: TokenizerConfig | TokenizerFolder, folder: Path, kept_in: Path, in_sentences: bool
) -> None:
    described, inputs = texts.describe(), texts.inputs(folder)
    job = PreprocessJob(
        inputs=inputs,
        output_prefix=str(folder / "corpus"),
        tokenizer=tokenizer,
        json_keys=(texts.json_key,),
        append_eod=not in_sentences,
        split_sentences=in_sentences,
        document=texts.document,
    )
    with byte_progress_bar("tokenizing", sum(map(os.path.getsize, inputs))) as advance:
        done = 0

        def follow(snapshot: Snapshot) -> None:
            nonlocal done
            advance(snapshot.consumed - done)
            done = snapshot.consumed

        (corpus,) = preprocess(job, Watch(advances=follow)).corpora
    texts.check_unchanged()
    if described:
        print_line(stderr_console(), f"prepared {described}: {corpus.tokens:,} tokens, kept in {kept_in}")


def _check_corpus(corpus: IndexedTokens) -> None:
    if not corpus.num_tokens:
        raise DataError(f"{corpus.prefix}.bin holds no tokens", fix="preprocess a corpus that has text in it")
