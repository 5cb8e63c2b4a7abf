"""Passages: whole sentences, nothing lost, nothing twice, and the same for everyone."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.cache import ArrayCache
from paddock.data.language import passages as module
from paddock.data.language.corpus import Sample, SyntheticCorpus
from paddock.data.language.passages import EvaluationPassages, Passages, TrainingPassages
from paddock.errors import DataError
from paddock.testing.samples.corpora import NumberedCorpus

DOCUMENTS = st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=8)


class Whole:
    """The simplest objective: a passage as it is, and one random number."""

    shortest = 1

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def check(self, passages: Passages) -> None: ...

    def sample(self, passages: Passages, passage: int, generator: np.random.Generator) -> Sample:
        return {"tokens": np.concatenate(passages.read(passage)), "lot": generator.integers(1 << 60, size=1)}


def passages_by_hand(documents: list[list[int]], longest: int) -> list[list[list[int]]]:
    """Passages as lists of sentences, one sentence after the other."""
    found, token = [], 0
    for document in documents:
        passage: list[list[int]] = []
        for size in document:
            for start in range(0, size, longest):
                piece = list(range(token + start, token + min(size, start + longest)))
                if sum(map(len, passage)) + len(piece) > longest:
                    found.append(passage)
                    passage = []
                passage.append(piece)
            token += size
        found.append(passage)
    return [passage for passage in found if passage]


def read_all(passages: Passages) -> list[list[list[int]]]:
    return [[piece.tolist() for piece in passages.read(index)] for index in range(len(passages))]


@given(DOCUMENTS, st.integers(1, 14), st.sampled_from([1, 3, 1 << 20]))
def test_passages_take_whole_sentences_while_they_fit(documents: list[list[int]], longest: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        passages = Passages(NumberedCorpus(documents), range(len(documents)), longest)
    assert read_all(passages) == passages_by_hand(documents, longest)


@given(DOCUMENTS, st.integers(1, 14), st.data())
def test_a_part_of_the_documents_has_the_same_passages(documents: list[list[int]], longest: int, data) -> None:
    first = data.draw(st.integers(0, len(documents)))
    last = data.draw(st.integers(first, len(documents)))
    shortest = data.draw(st.integers(1, 3))
    before = sum(map(sum, documents[:first]))
    expected = [
        [[before + token for token in piece] for piece in passage]
        for passage in passages_by_hand(documents[first:last], longest)
        if sum(map(len, passage)) >= shortest
    ]
    assert read_all(Passages(NumberedCorpus(documents), range(first, last), longest, shortest)) == expected


def test_a_long_document_that_was_not_split_is_cut() -> None:
    passages = Passages(NumberedCorpus([[100_001], [7]]), range(2), 100)
    assert len(passages) == 1002
    assert passages.lengths.tolist() == [100] * 1000 + [1, 7]
    assert passages.read(500)[0].tolist() == list(range(50_000, 50_100))


@given(DOCUMENTS.filter(lambda documents: sum(map(sum, documents)) > 0), st.integers(1, 9), st.integers(0, 9))
def test_elsewhere_is_any_passage_of_another_document(documents: list[list[int]], longest: int, seed: int) -> None:
    passages = Passages(NumberedCorpus(documents), range(len(documents)), longest)
    borders = np.cumsum([0, *map(sum, documents)])
    homes = [int(np.searchsorted(borders, passages.read(index)[0][0], side="right")) for index in range(len(passages))]
    generator = np.random.default_rng(seed)
    for passage, home in enumerate(homes):
        assert list(passages.document_of(passage)) == [index for index, other in enumerate(homes) if other == home]
        if len(set(homes)) > 1:
            assert homes[passages.elsewhere(passage, generator)] != home
    if len(set(homes)) > 1 and len(homes) < 8:
        drawn = {passages.elsewhere(0, generator) for _ in range(400)}
        assert drawn == {index for index, home in enumerate(homes) if home != homes[0]}


@given(DOCUMENTS.filter(lambda documents: sum(map(sum, documents)) > 0), st.integers(1, 14), st.integers(0, 3))
def test_training_reads_every_token_once_an_epoch(documents: list[list[int]], longest: int, seed: int) -> None:
    samples = TrainingPassages(NumberedCorpus(documents), range(len(documents)), Whole(longest), seed)
    epoch = int(samples.samples_per_epoch)
    for first in (0, 5 * epoch):
        seen = Counter(chain.from_iterable(samples[i]["tokens"].tolist() for i in range(first, first + epoch)))
        assert seen == dict.fromkeys(range(sum(map(sum, documents))), 1)


def test_a_sample_depends_on_the_seed_and_its_number_only() -> None:
    corpus = NumberedCorpus([[7] * 5] * 20)

    def fresh(seed: int) -> TrainingPassages:
        return TrainingPassages(corpus, range(20), Whole(14), seed)

    def content(sample: Sample) -> tuple[list[int], int]:
        return sample["tokens"].tolist(), int(sample["lot"][0])

    samples, epoch = fresh(0), int(fresh(0).samples_per_epoch)
    numbers = np.random.default_rng(0).permutation(3 * epoch).tolist()
    read = {number: content(samples[number]) for number in numbers}
    copy = pickle.loads(pickle.dumps(samples))  # noqa: S301
    assert all(content(copy[number]) == read[number] for number in range(3 * epoch))
    assert all(content(fresh(0)[number]) == read[number] for number in numbers[:20])
    orders = [[read[epoch * i + j][0] for j in range(epoch)] for i in range(3)]
    orders.append([fresh(1)[j]["tokens"].tolist() for j in range(epoch)])
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({str(order) for order in orders}) == 4
    assert len({lot for _, lot in read.values()}) == 3 * epoch


def test_evaluation_reads_every_passage_once_in_order_with_fixed_draws() -> None:
    corpus = NumberedCorpus([[3, 4], [5], [], [2, 2, 9]])
    samples = EvaluationPassages(corpus, range(4), Whole(7), seed=3)
    assert [sample["tokens"].tolist() for sample in samples] == [
        list(chain.from_iterable(passage)) for passage in passages_by_hand([[3, 4], [5], [], [2, 2, 9]], 7)
    ]
    assert samples[1]["lot"] == EvaluationPassages(corpus, range(4), Whole(7), seed=3)[1]["lot"]
    assert samples[1]["lot"] != EvaluationPassages(corpus, range(4), Whole(7), seed=4)[1]["lot"]
    for outside in (-1, len(samples)):
        with pytest.raises(IndexError):
            samples[outside]


def test_an_empty_part_is_an_error() -> None:
    with pytest.raises(DataError, match="the training part is empty"):
        TrainingPassages(NumberedCorpus([[0], []]), range(2), Whole(4), seed=0)
    assert len(EvaluationPassages(NumberedCorpus([[3]]), range(0), Whole(4), seed=0)) == 0


def test_a_large_index_is_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, cache = NumberedCorpus([[5, 6, 7], [20], []] * 30), ArrayCache((tmp_path,), "print")
    expected = read_all(Passages(corpus, range(90), 12, cache=cache))
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(module, "LARGE", 90)
    assert read_all(Passages(corpus, range(90), 12, cache=cache)) == expected
    assert len(list(tmp_path.glob("*.arrays"))) == 1
    built = Passages(corpus, range(90), 13, cache=cache)
    assert read_all(built) == read_all(Passages(corpus, range(90), 13)) != expected
    monkeypatch.setattr(module, "_index", None)  # from now on, only files
    samples = TrainingPassages(corpus, range(90), Whole(12), seed=0, cache=cache)
    copy = pickle.loads(pickle.dumps(samples))  # noqa: S301
    assert [copy[index]["tokens"].tolist() for index in range(90)] == [
        samples[index]["tokens"].tolist() for index in range(90)
    ]


def test_mock_data_has_passages_too() -> None:
    corpus = SyntheticCorpus(vocab=50, length=20, seed=0)
    samples = TrainingPassages(corpus, range(10), Whole(8), seed=0)
    assert samples.samples_per_epoch == 30
    assert {len(samples[index]["tokens"]) for index in range(30)} == {8, 4}
