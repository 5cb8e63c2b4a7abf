"""Making a corpus ready before processes start: text becomes a tokenizer and indexed files, kept for next time.

The folder's name is a fingerprint of everything that went in, and it appears only when complete, so several jobs
may prepare the same corpus at once and a finished one is never rebuilt.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from paddock.data.cache import build_folder, cache_folder
from paddock.data.config import TokenizerConfig, TokensConfig, parse_blend
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.preprocess.job import PreprocessJob, TokenizerFolder
from paddock.data.preprocess.journal import tokenizer_facts
from paddock.data.preprocess.run import preprocess
from paddock.data.tokenizers.load import Tokenizer, check_fits, load_tokenizer, load_tokenizer_folder, train_tokenizer
from paddock.errors import DataError, UserError


@dataclass(frozen=True)
class PreparedCorpus:
    """Corpora that are ready to be read: the weight and the prefix of each (none: synthetic), and their tokenizer."""

    prefixes: list[tuple[float | None, Path]]
    tokenizer: Tokenizer | None
    classes: tuple[str, ...] = ()


def prepare(data: TokensConfig, tokenizer: TokenizerConfig, vocab: int) -> PreparedCorpus:
    """Find or build the corpus, and check that the tokenizer fits the model."""
    if data.source == "embedded":
        prepared = _prepare_text(embedded_documents(), data, tokenizer, vocab)
    else:
        blend = [] if data.source == "synthetic" else parse_blend(data.path or ())
        for _, prefix in blend:
            _check_corpus(IndexedTokens(prefix))
        prepared = PreparedCorpus([(weight, Path(prefix)) for weight, prefix in blend], load_tokenizer(tokenizer))
    if prepared.tokenizer is not None:
        check_fits(prepared.tokenizer, vocab)
    return prepared


def _prepare_text(texts: list[str], data: TokensConfig, config: TokenizerConfig, vocab: int) -> PreparedCorpus:
    ingredients = (texts, tokenizer_facts(config), vocab)
    fingerprint = hashlib.sha256(repr(ingredients).encode()).hexdigest()[:16]
    folder = cache_folder(data) / f"{data.source}-{fingerprint}"
    build_folder(folder, lambda partial: _build(texts, config, vocab, partial))
    try:
        prefix = folder / "corpus_text_document"
        _check_corpus(IndexedTokens(prefix))
        return PreparedCorpus([(None, prefix)], load_tokenizer_folder(folder, config.end_of_text))
    except UserError as error:
        raise DataError(f"the prepared corpus in {folder} is damaged", why=str(error), fix=f"remove {folder}") from None


def _build(texts: list[str], config: TokenizerConfig, vocab: int, folder: Path) -> None:
    trained = config.kind == "trained"
    learned = train_tokenizer(texts, vocab, config.end_of_text, config.extra_ids or 0) if trained else None
    tokenizer = learned or load_tokenizer(config)
    assert tokenizer is not None, "a rule of the recipe sees to it"
    check_fits(tokenizer, vocab, parts=["end_of_text"])
    tokenizer.save(folder)
    with open(folder / "corpus.jsonl", "w", encoding="utf-8") as stream:
        stream.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    preprocess(
        PreprocessJob(
            inputs=(str(folder / "corpus.jsonl"),),
            output_prefix=str(folder / "corpus"),
            tokenizer=TokenizerFolder(folder, config.end_of_text),
            append_eod=True,
        )
    )


def _check_corpus(corpus: IndexedTokens) -> None:
    if not corpus.num_tokens:
        raise DataError(f"{corpus.prefix}.bin holds no tokens", fix="preprocess a corpus that has text in it")


def embedded_documents() -> list[str]:
    """The corpus that needs no download: the Python language reference inside every CPython, about 0.45 MB of prose.

    These are the topics of `pydoc`, in alphabetical order of their names."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise DataError(
            "this Python has no pydoc_data",
            why="its distribution left it out",
            fix="use --data.source indexed",
        ) from None
    return [text.strip() for _, text in sorted(topics.items()) if text.strip()]
