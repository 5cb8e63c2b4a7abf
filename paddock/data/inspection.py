"""A look into a corpus: how much there is, how long documents are, and what some of them say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paddock.data.indexed import IndexedTokens
from paddock.data.lengths import LengthRange, Lengths
from paddock.data.tokenizer import Tokenizer
from paddock.errors import DataError, bad_value

BLOCK = 1 << 16
SAMPLE_TOKENS = 100
SAMPLE_IDS = 20
"""What is shown of a document as text, and as mere numbers."""


@dataclass(frozen=True)
class DocumentSample:
    """The beginning of a document."""

    document: int
    tokens: int
    ids: tuple[int, ...]
    text: str | None


@dataclass(frozen=True)
class Inspection:
    """What a corpus holds."""

    prefix: str
    form: str
    dtype: str
    documents: int
    sequences: int
    tokens: int
    bytes: int
    index_bytes: int
    document_lengths: dict[str, float]
    sequence_lengths: dict[str, float]
    histogram: list[LengthRange]
    """How many documents have so many tokens."""
    samples: list[DocumentSample]


def inspect(prefix: str | Path, samples: int, tokenizer: Tokenizer | None) -> Inspection:
    """Count a corpus, and read the beginnings of `samples` documents, spread over it."""
    if samples < 0:
        raise bad_value("--documents", samples, "it is the number of documents to show", "0 shows none")
    corpus = IndexedTokens(prefix)
    documents, sequences = Lengths(), Lengths()
    for first in range(0, corpus.num_documents, BLOCK):
        borders = corpus.documents[first : first + BLOCK + 1]
        sizes = corpus.sizes[borders[0] : borders[-1]]
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        documents.add(np.diff(ends[borders - borders[0]]))
        sequences.add(sizes)
    chosen = np.unique(np.linspace(0, corpus.num_documents - 1, min(samples, corpus.num_documents)).astype(np.int64))
    return Inspection(
        prefix=corpus.prefix,
        form=corpus.form,
        dtype=corpus.dtype.name,
        documents=documents.count,
        sequences=sequences.count,
        tokens=documents.total,
        bytes=corpus.num_bytes,
        index_bytes=Path(f"{prefix}.idx").stat().st_size,
        document_lengths=documents.summary(),
        sequence_lengths=sequences.summary(),
        histogram=documents.histogram(),
        samples=[_sample(corpus, document, tokenizer) for document in chosen.tolist()],
    )


def _sample(corpus: IndexedTokens, document: int, tokenizer: Tokenizer | None) -> DocumentSample:
    begin, end = corpus.documents[document : document + 2].tolist()
    most = SAMPLE_IDS if tokenizer is None else SAMPLE_TOKENS
    ids: list[int] = []
    for sequence in range(begin, end):
        ids += corpus.slice(sequence, 0, min(corpus.sizes.item(sequence), most - len(ids))).tolist()
        if len(ids) == most:
            break
    if tokenizer is not None and ids and not 0 <= min(ids) <= max(ids) < tokenizer.vocab_size:
        raise DataError(
            f"the tokenizer does not fit {corpus.prefix}",
            why=f"document {document} has token {max(ids)}, but the tokenizer has {tokenizer.vocab_size} tokens",
            fix="give the one it was made with, or see the numbers alone with --documents 0",
        )
    tokens = int(corpus.sizes[begin:end].sum(dtype=np.int64))
    return DocumentSample(document, tokens, tuple(ids), None if tokenizer is None else tokenizer.decode(ids))
