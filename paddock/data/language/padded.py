"""Padded samples for language modelling: a document each, filled up to one length.

The padding stands behind the document, where no token of it looks, and no label counts there. A sample has no token of
another document: nothing has to be told of borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.data.language.corpus import Corpus, Sample, document_sizes
from paddock.data.language.windows import fill_tokens
from paddock.data.loading.sampler import Shuffle
from paddock.errors import DataError
from paddock.models.config import IGNORED

ORDER = 3
"""What a random stream is for; a part of its seed."""


class PaddedDocuments(Sequence[Sample]):
    """Every document of a part of the corpus that has something to predict, in order."""

    def __init__(self, corpus: Corpus, documents: range, sequence_length: int, truncate: bool) -> None:
        self._made_from = (corpus, documents, sequence_length, truncate)
        self._corpus, self._documents, self._length = corpus, documents, sequence_length
        sizes = document_sizes(corpus, documents)
        self._numbers = np.flatnonzero(sizes >= 2)
        longest = sequence_length + 1  # the last token is only predicted
        self.num_cut = int((sizes > longest).sum())
        """Documents of which the end is left out."""
        self.tokens = int(np.minimum(sizes, longest).sum(dtype=np.int64))
        if self.num_cut and not truncate:
            raise _too_long(sizes, documents, sequence_length, self.num_cut)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_from

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        document = self._documents[self._numbers.item(index)]
        borders = self._corpus.documents
        sequences = range(borders.item(document), borders.item(document + 1))
        tokens = np.zeros(self._length + 1, dtype=np.int64)
        filled = fill_tokens(tokens, self._corpus, sequences, 0)
        labels = tokens[1:].copy()
        labels[filled - 1 :] = IGNORED
        return {"tokens": tokens[:-1], "labels": labels}


class TrainingDocuments:
    """An endless sequence of them: every epoch in an order that depends on (seed, epoch) only."""

    def __init__(self, documents: PaddedDocuments, seed: int) -> None:
        if not len(documents):
            raise DataError(
                "the training part is empty",
                why="none of its documents has two tokens",
                fix="give a larger corpus, or a data.split with more weight on training",
            )
        self._documents, self._seed = documents, seed
        self.tokens = documents.tokens
        self._shuffled: tuple[int, Shuffle] | None = None

    @property
    def samples_per_epoch(self) -> float:
        return len(self._documents)

    def __getitem__(self, index: int) -> Sample:
        epoch, place = divmod(index, len(self._documents))
        if self._shuffled is None or self._shuffled[0] != epoch:
            self._shuffled = epoch, Shuffle(len(self._documents), self._seed, epoch, ORDER)
        return self._documents[self._shuffled[1][place]]


def _too_long(sizes: NDArray[np.integer], documents: range, length: int, count: int) -> DataError:
    place, most, room = int(np.argmax(sizes > length + 1)), int(sizes.max()), length + 1
    return DataError(
        f"document {documents[place] + 1} of the corpus has {sizes[place]} tokens",
        why=f"data.sequence_length = {length} has room for {room}, and {count} of {len(sizes)} documents are longer",
        fix=f"set --data.sequence-length {most - 1} (for the longest), or --data.truncate, or --data.samples packed",
    )
