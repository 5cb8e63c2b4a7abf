"""Corpora in files, and one that is larger than any disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.language.corpus import Corpus
from paddock.testing.data import NumberedCorpus


class HugeCorpus(NumberedCorpus):
    """Sequences of any size, of which no token is stored: token t of the corpus is t modulo a prime."""

    prime = 999_983

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""
        return super().slice(sequence, start, stop) % self.prime


def tokens_of(corpus: Corpus, document: int) -> list[int]:
    """One document, read sequence by sequence."""
    sequences = range(*corpus.documents[document : document + 2].tolist())
    return [token for at in sequences for token in corpus.slice(at, 0, corpus.sizes.item(at)).tolist()]


def write_corpus(prefix: Path, documents: list[list[int]], vocab: int = 2**20) -> IndexedTokens:
    """The tokens of `NumberedCorpus`, in files."""
    corpus = NumberedCorpus(documents)
    with IndexedWriter(prefix, vocab) as writer:
        for first, sizes in zip(corpus.documents.tolist(), documents, strict=False):
            writer.add_document(*(corpus.slice(first + at, 0, size) for at, size in enumerate(sizes)))
    return IndexedTokens(prefix)
