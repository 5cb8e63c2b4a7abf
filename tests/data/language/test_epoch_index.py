"""The index of an epoch: right for documents of several sequences, kept in a file, ready before it is needed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.cache import cache_beside
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.language import corpus as corpora
from paddock.data.language import epoch_index, windows
from paddock.data.language.corpus import TokenLocator, are_single, count_tokens, document_sizes, sequences_of
from paddock.data.language.epoch_index import EpochIndexes
from paddock.data.language.windows import TrainingSamples
from paddock.data.loading.sampler import Shuffle
from paddock.testing.samples.corpora import NumberedCorpus, write_corpus

DOCUMENTS = st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=12)


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """As if a handful of sequences were many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "PIECE", 3)
        patch.setattr(corpora, "BLOCK", 2)
        patch.setattr(windows, "BLOCK", 2)
        yield


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_index, "SMALL", 0)


@given(DOCUMENTS, st.data())
def test_where_tokens_lie(documents: list[list[int]], data: st.DataObject) -> None:
    corpus = NumberedCorpus(documents)
    start = data.draw(st.integers(0, len(documents)))
    part = range(start, data.draw(st.integers(start, len(documents))))
    chosen = documents[part.start : part.stop]
    sequences = [at for document in part for at in range(*corpus.documents[document : document + 2])]
    assert list(sequences_of(corpus, part)) == sequences
    assert are_single(corpus, part) == all(len(sizes) == 1 for sizes in chosen)
    assert count_tokens(corpus, part) == sum(map(sum, chosen))
    assert document_sizes(corpus, part).tolist() == list(map(sum, chosen))
    expected = [(at, offset) for at in sequences for offset in range(corpus.sizes[at])]
    places = TokenLocator(corpus, sequences_of(corpus, part))
    assert [places.find(token) for token in range(places.tokens)] == expected
    for at in sequences:
        assert places.number(at) == sum(corpus.sizes[sequences[0] : at])


def test_documents_of_very_many_sequences() -> None:
    """More of them than are looked at in one go."""
    corpus = NumberedCorpus([[1, 2, 0, 3, 1], [4], [2, 2, 2, 2, 2, 2, 2]])
    samples = TrainingSamples(corpus, range(3), 1, seed=0)
    assert sorted(samples[index]["tokens"].item() for index in range(25)) == list(range(25))


@given(st.integers(0, 300), st.integers(0, 5))
def test_a_shuffled_order_has_every_number_once(count: int, seed: int) -> None:
    order = list(Shuffle(count, seed, 1))
    assert sorted(order) == list(range(count))
    if count > 20:
        assert order not in (sorted(order), list(Shuffle(count, seed, 2)), list(Shuffle(count, seed + 1, 1)))


def test_a_shuffled_order_of_any_length() -> None:
    order = Shuffle(10**15, 0)
    seen = np.array([order[index] for index in range(2000)])
    assert len(set(seen.tolist())) == 2000
    assert abs(seen.mean() / 10**15 - 0.5) < 0.03 and abs(np.corrcoef(seen[1:], seen[:-1])[0, 1]) < 0.1
    with pytest.raises(IndexError):
        order[10**15]


def test_every_order_of_a_few_is_as_likely() -> None:
    counts = Counter(tuple(Shuffle(4, seed)) for seed in range(4800))
    assert len(counts) == 24 and max(counts.values()) < 270 and min(counts.values()) > 135  # 200 ± 5 deviations


def samples_of(prefix: Path) -> TrainingSamples:
    corpus = IndexedTokens(prefix)
    return TrainingSamples(
        corpus, range(corpus.num_documents), 4, 0, cache=cache_beside(corpus, prefix.parent / "none")
    )


def read(samples: TrainingSamples, count: int = 19) -> list[list[int]]:
    return [samples[index]["tokens"].tolist() for index in range(count)]


def files(prefix: Path) -> set[Path]:
    return set(Path(f"{prefix}.paddock").glob("*.arrays"))


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("documents", [[[3], [0], [7], [5]] * 3, [[3, 4], [], [5, 0, 2], [1]] * 3])
def test_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: list[list[int]]) -> None:
    corpus = write_corpus(tmp_path / "corpus", documents)
    expected = read(TrainingSamples(corpus, range(len(documents)), 4, 0))
    assert not files(tmp_path / "corpus")
    assert read(samples_of(tmp_path / "corpus")) == expected
    assert files(tmp_path / "corpus")
    with monkeypatch.context() as patch:
        patch.setattr(EpochIndexes, "_build", lambda *_: pytest.fail("built again"))
        assert read(samples_of(tmp_path / "corpus")) == expected
    changed = [*documents, [9, 9]]
    expected = read(TrainingSamples(write_corpus(tmp_path / "corpus", changed), range(len(changed)), 4, 0))
    assert read(samples_of(tmp_path / "corpus")) == expected


def test_small_corpora_need_no_file(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", [[5]] * 20)
    read(samples_of(tmp_path / "corpus"))
    assert {path.name for path in tmp_path.iterdir()} == {"corpus.bin", "corpus.idx"}


@pytest.mark.usefixtures("everything_is_large")
def test_the_next_epoch_is_ready_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "corpus", [[10]] * 40)  # 100 samples an epoch
    built: list[tuple[int, bool]] = []
    build = EpochIndexes._build

    def watched(indexes: EpochIndexes, epoch: int) -> dict[str, np.ndarray]:
        built.append((epoch, threading.current_thread() is threading.main_thread()))
        return build(indexes, epoch)

    monkeypatch.setattr(EpochIndexes, "_build", watched)
    samples = samples_of(tmp_path / "corpus")
    samples[89]
    assert built == [(0, True)]
    samples[90]
    samples[100]
    assert built == [(0, True), (1, False)]
    samples[500]  # another one than was expected
    assert built == [(0, True), (1, False), (5, True)]


@pytest.mark.usefixtures("everything_is_large")
def test_an_error_in_the_background_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path / "corpus", [[10]] * 40)
    samples = samples_of(tmp_path / "corpus")
    samples[0]

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(EpochIndexes, "_build", fail)
    samples[99]
    with pytest.raises(MemoryError, match="no room"):
        samples[100]
