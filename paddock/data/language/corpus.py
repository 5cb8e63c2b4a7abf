"""What datasets need of a corpus, wherever its tokens come from; and a corpus of random tokens.

Documents are the unit of splitting and shuffling; a document is one or more sequences that follow each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Sample = dict[str, NDArray[np.int64]]
"""What a dataset gives: arrays by their names."""

PIECE = 2**20
"""Sequences that are looked at in one go, so that memory stays bounded."""
BLOCK = 2**10
"""Sequences between two remembered positions: what finding a token looks at."""


class Corpus(Protocol):
    """Documents of one or more sequences of tokens, read piece by piece."""

    @property
    def sizes(self) -> NDArray[np.integer]:
        """The number of tokens of each sequence."""

    @property
    def documents(self) -> NDArray[np.integer]:
        """Borders: document d is the sequences `documents[d]` to `documents[d + 1] - 1`."""

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""


def split_documents(count: int, weights: tuple[float, float, float]) -> tuple[range, range, range]:
    """The training, validation and test documents: consecutive, in proportion to the weights.

    The borders are rounded as Megatron-LM rounds them, so that the same split gives the same documents."""
    total, reached, borders = sum(weights), 0.0, [0]
    for weight in weights:
        reached += weight / total
        borders.append(round(reached * count))
    return range(borders[0], borders[1]), range(borders[1], borders[2]), range(borders[2], borders[3])


class CutDocument:
    """The one document of a corpus as three: its training, validation and test part, in proportion to the weights. They
    are cut between tokens; a sequence in which a cut falls becomes two."""

    def __init__(self, corpus: Corpus, weights: tuple[float, float, float]) -> None:
        self._corpus = corpus
        ends = np.cumsum(corpus.sizes, dtype=np.int64)
        begins, total = ends - corpus.sizes, int(ends[-1])
        cuts = [0, *(part.stop for part in split_documents(total, weights))]
        starts = np.unique(np.concatenate([begins, cuts]))
        starts = starts[starts < total]
        self._sequence = np.searchsorted(ends, starts, side="right")
        self._offset = starts - begins[self._sequence]
        self.sizes: NDArray[np.integer] = np.diff(np.append(starts, total))
        self.documents: NDArray[np.integer] = np.searchsorted(starts, cuts)

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""
        offset = self._offset.item(sequence)
        return self._corpus.slice(self._sequence.item(sequence), offset + start, offset + stop)


def sequences_of(corpus: Corpus, documents: range) -> range:
    """The sequences of consecutive documents."""
    if not len(documents):
        return range(0)
    return range(int(corpus.documents[documents.start]), int(corpus.documents[documents.stop]))


def count_tokens(corpus: Corpus, documents: range) -> int:
    """How many tokens consecutive documents hold."""
    sequences = sequences_of(corpus, documents)
    return int(corpus.sizes[sequences.start : sequences.stop].sum(dtype=np.int64))


def index_samples(corpus: Corpus, blocks: int = 64, entries: int = 1024) -> Iterator[bytes]:
    """Pieces from all over a corpus's index, for a digest: enough to tell it from another, few enough to be quick."""
    for array in (corpus.sizes, corpus.documents):
        yield f"{array.dtype.str} {len(array)}".encode()
        for begin in np.linspace(0, max(0, len(array) - entries), blocks, dtype=np.int64).tolist():
            yield array[begin : begin + entries].tobytes()


def describe_part(corpus: Corpus, documents: range) -> str:
    """A line that tells these documents from others, the same on every machine."""
    digest = hashlib.sha256(b"".join(index_samples(corpus))).hexdigest()[:12]
    return (
        f"{len(documents)} of {len(corpus.documents) - 1} documents, {count_tokens(corpus, documents)} tokens, {digest}"
    )


def describe_content(corpus: Corpus, documents: range, places: int = 64, tokens: int = 1024) -> str:
    """A digest of what these documents say at `places` all over them, however they are stored. Whatever the size of
    the corpus, no more than so many tokens of each place are read."""
    digest, locator = hashlib.sha256(), TokenLocator(corpus, sequences_of(corpus, documents))
    for place in range(0, locator.tokens, -(-locator.tokens // places) or 1):
        sequence, begin = locator.find(place)
        piece = corpus.slice(sequence, begin, min(begin + tokens, corpus.sizes.item(sequence)))
        digest.update(piece.astype("<i8").tobytes())
    return digest.hexdigest()[:12]


def are_single(corpus: Corpus, documents: range) -> bool:
    """Whether each of these documents is exactly one sequence."""
    if len(sequences_of(corpus, documents)) != len(documents):
        return False
    borders = corpus.documents
    pieces = (borders[at : min(at + PIECE, documents.stop) + 1] for at in documents[::PIECE])
    return all(bool((np.diff(piece) == 1).all()) for piece in pieces)


def document_sizes(corpus: Corpus, documents: range) -> NDArray[np.integer]:
    """The number of tokens of each of these documents."""
    sequences = sequences_of(corpus, documents)
    if are_single(corpus, documents):
        return corpus.sizes[sequences.start : sequences.stop]
    borders = corpus.documents[documents.start : documents.stop + 1]
    reached = np.zeros(len(borders), dtype=np.int64)
    before = 0
    for first in sequences[::PIECE]:
        ends = np.cumsum(corpus.sizes[first : min(first + PIECE, sequences.stop)], dtype=np.int64) + before
        low, high = np.searchsorted(borders, [first, first + len(ends)], side="right")
        reached[low:high] = ends[borders[low:high] - first - 1]
        before = ends[-1]
    return np.diff(reached)


class TokenLocator:
    """Where the tokens of consecutive sequences lie, by their number. Remembers one number per block of sequences."""

    def __init__(self, corpus: Corpus, sequences: range) -> None:
        self._corpus, self._sequences = corpus, sequences
        sizes = corpus.sizes[sequences.start : sequences.stop]
        blocks = np.add.reduceat(sizes, np.arange(0, len(sizes), BLOCK), dtype=np.int64)
        self._before = np.concatenate([[0], np.cumsum(blocks)])
        self.tokens = int(self._before[-1])

    def number(self, sequence: int) -> int:
        """The number of the first token of a sequence."""
        block = (sequence - self._sequences.start) // BLOCK
        first = self._sequences.start + block * BLOCK
        return self._before.item(block) + int(self._corpus.sizes[first:sequence].sum(dtype=np.int64))

    def find(self, token: int) -> tuple[int, int]:
        """The sequence that holds a token, and the token's place in it."""
        block = int(self._before.searchsorted(token, side="right")) - 1
        first = self._sequences.start + block * BLOCK
        sizes = self._corpus.sizes[first : min(first + BLOCK, self._sequences.stop)]
        ends = np.cumsum(sizes, dtype=np.int64)
        offset = token - self._before.item(block)
        at = int(ends.searchsorted(offset, side="right"))
        return first + at, offset - (ends.item(at) - sizes.item(at))


class SyntheticCorpus:
    """`count` documents of `length` tokens each; every token is a hash of its position and the seed."""

    def __init__(self, vocab: int, length: int, seed: int, count: int = 10_000) -> None:
        self._vocab, self._seed = vocab, seed
        self.sizes: NDArray[np.integer] = np.broadcast_to(np.int32(length), count)
        self.documents: NDArray[np.integer] = np.arange(count + 1)

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""
        generator = np.random.default_rng([self._seed, sequence])
        return generator.integers(0, self._vocab, size=stop)[start:]
