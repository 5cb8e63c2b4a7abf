"""What tells one corpus from another: a few pieces of what it says, however large it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.writer import IndexedWriter
from paddock.data.language.corpus import describe_content


class Text:
    """Documents of these sizes, of one token, or of another one from a place on; it counts what is read of it."""

    def __init__(self, sizes: list[int], other_from: int | None = None) -> None:
        self.sizes: NDArray[np.integer] = np.asarray(sizes, dtype=np.int32)
        self.documents: NDArray[np.integer] = np.arange(len(sizes) + 1)
        self._begins = np.cumsum(self.sizes, dtype=np.int64) - self.sizes
        self._other_from = int(self.sizes.sum()) if other_from is None else other_from
        self.tokens_read = 0

    def slice(self, sequence: int, start: int, stop: int) -> NDArray[np.integer]:
        """Tokens start…stop of one sequence."""
        self.tokens_read += stop - start
        return np.arange(start, stop) + self._begins[sequence] >= self._other_from


def described(text: Text) -> str:
    return describe_content(text, range(len(text.sizes)))


@pytest.mark.parametrize("sizes", [[100_000], [50_000, 50_000], [10] * 10_000, [0, 99_000, 0, 1000]], ids=len)
def test_a_text_that_is_another_from_any_place_on_is_told_apart(sizes: list[int]) -> None:
    places = [0, 1, 40_000, 90_000, 98_000]
    assert len({described(Text(sizes, place)) for place in [*places, None]}) == len(places) + 1


@pytest.mark.parametrize("size", [1, 10, 1000, 1_000_000])
def test_what_is_read_does_not_grow_with_the_corpus(size: int) -> None:
    for sizes in ([size] * 1000, [size * 1000]):
        text = Text(sizes)
        described(text)
        assert 0 < text.tokens_read <= 64 * 1024


def test_documents_alone_are_described() -> None:
    """Those of the part, and of no other; no documents say nothing."""
    assert describe_content(Text([10] * 20, 100), range(10)) == describe_content(Text([10] * 20), range(10))
    assert describe_content(Text([10] * 20, 100), range(11)) != describe_content(Text([10] * 20), range(11))
    assert describe_content(Text([]), range(0)) == describe_content(Text([10]), range(0))


def test_how_wide_the_numbers_are_stored_does_not_matter(tmp_path: Path) -> None:
    found = set()
    for vocab in (1000, 100_000):
        with IndexedWriter(tmp_path / str(vocab), vocab) as writer:
            writer.add_document(np.arange(500))
        corpus = IndexedTokens(tmp_path / str(vocab))
        found.add((corpus.dtype.itemsize, describe_content(corpus, range(1))))
    assert len(found) == 2 and len({described for _, described in found}) == 1
