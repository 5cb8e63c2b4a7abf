"""Making a corpus ready before processes start: text becomes a tokenizer and indexed files, kept for next time.

The folder's name is a fingerprint of everything that went in, and it appears only when complete, so several jobs
may prepare the same corpus at once and a finished one is never rebuilt.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from paddock.data.config import DataConfig, TokenizerConfig
from paddock.data.embedded import embedded_documents
from paddock.data.indexed import IndexedTokens, IndexedWriter
from paddock.data.tokenizer import Tokenizer, load_tokenizer, load_tokenizer_folder, train_tokenizer
from paddock.errors import ConfigError, DataError, UserError
from paddock.files import disk_errors


@dataclass(frozen=True)
class PreparedData:
    """A corpus that is ready to be read: the prefix of its indexed files (None: synthetic), and its tokenizer."""

    prefix: Path | None
    tokenizer: Tokenizer | None


def prepare(data: DataConfig, tokenizer: TokenizerConfig, vocab: int) -> PreparedData:
    """Find or build the corpus, and check that the tokenizer fits the model."""
    if data.source == "embedded":
        prepared = _prepare_text(embedded_documents(), data, tokenizer, vocab)
    else:
        prefix = None if data.source == "synthetic" else Path(data.path or "")
        if prefix is not None:
            _check_corpus(IndexedTokens(prefix))
        prepared = PreparedData(prefix, load_tokenizer(tokenizer))
    if prepared.tokenizer is not None and prepared.tokenizer.vocab_size > vocab:
        raise ConfigError(
            f"model.vocab = {vocab}",
            why=f"the tokenizer has {prepared.tokenizer.vocab_size} tokens",
            fix=f"set --model.vocab {prepared.tokenizer.vocab_size}",
        )
    return prepared


def _prepare_text(texts: list[str], data: DataConfig, config: TokenizerConfig, vocab: int) -> PreparedData:
    fingerprint = hashlib.sha256(repr((texts, config.model_dump(), vocab)).encode()).hexdigest()[:16]
    folder = cache_folder(data) / f"{data.source}-{fingerprint}"
    if not folder.is_dir():
        with disk_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            _build(texts, config, vocab, partial)
            os.chmod(partial, 0o755)
            os.rename(partial, folder)
        except OSError:
            if not folder.is_dir():  # otherwise another job was faster, with the same result
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    try:
        _check_corpus(IndexedTokens(folder / "corpus"))
        return PreparedData(folder / "corpus", load_tokenizer_folder(folder, config.end_of_text))
    except UserError as error:
        raise DataError(f"the prepared corpus in {folder} is damaged", why=str(error), fix=f"remove {folder}") from None


def _build(texts: list[str], config: TokenizerConfig, vocab: int, folder: Path) -> None:
    trained = config.kind == "trained"
    tokenizer = train_tokenizer(texts, vocab, config.end_of_text) if trained else load_tokenizer(config)
    assert tokenizer is not None, "a rule of the recipe sees to it"
    tokenizer.save(folder)
    with IndexedWriter(folder / "corpus", tokenizer.vocab_size) as writer:
        for document in tokenizer.encode_documents(texts):
            writer.add_document(document)


def _check_corpus(corpus: IndexedTokens) -> None:
    if not len(corpus) or not int(corpus.sizes.sum()):
        raise DataError(f"{corpus.prefix}.bin holds no tokens", fix="preprocess a corpus that has text in it")


def cache_folder(data: DataConfig) -> Path:
    """Where prepared corpora are kept."""
    if data.cache is not None:
        return Path(data.cache).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "paddock"
