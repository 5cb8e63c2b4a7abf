"""Samples for language modelling: nothing lost, nothing twice, and the same for everyone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.gpt import EvaluationSamples, TrainingSamples, split_documents
from paddock.data.sampler import Sampler, share
from paddock.data.synthetic import SyntheticCorpus
from paddock.errors import DataError
from paddock.models.labels import IGNORED


class ListCorpus:
    """Documents whose every token is different, so that each can be told from all others."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int32)
        borders = np.concatenate([[0], np.cumsum(self.sizes)])
        self.documents = [np.arange(a, b) for a, b in zip(borders, borders[1:], strict=False)]

    def slice(self, sequence: int, start: int, stop: int) -> np.ndarray:
        return self.documents[sequence][start:stop]


SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(lambda sizes: sum(sizes) >= 2)


@given(SIZES, st.integers(1, 7), st.integers(0, 3))
def test_training_reads_every_token_once_an_epoch(sizes: list[int], length: int, seed: int) -> None:
    corpus = ListCorpus(sizes)
    samples = TrainingSamples(corpus, range(len(sizes)), length, seed)
    tokens, epochs = sum(sizes), 3
    # As many samples as end exactly at the end of an epoch: length × epochs of them.
    seen = Counter(token for i in range(tokens * epochs) for token in samples[i]["tokens"].tolist())
    assert seen == dict.fromkeys(range(tokens), epochs * length)
    assert samples.samples_per_epoch == tokens / length


@given(SIZES, st.integers(1, 7))
def test_labels_are_the_next_tokens(sizes: list[int], length: int) -> None:
    samples = TrainingSamples(ListCorpus(sizes), range(len(sizes)), length, seed=0)
    for index in range(20):
        sample = samples[index]
        assert len(sample["tokens"]) == len(sample["labels"]) == length
        assert sample["tokens"][1:].tolist() == sample["labels"][:-1].tolist()


def test_documents_stay_whole_and_in_their_order_inside() -> None:
    samples = TrainingSamples(ListCorpus([5, 5, 5, 5]), range(4), 20, seed=0)
    tokens = samples[0]["tokens"].tolist()
    documents = [tokens[start : start + 5] for start in range(0, 20, 5)]
    assert sorted(documents) == [list(range(start, start + 5)) for start in range(0, 20, 5)]
    assert documents != sorted(documents)


def test_order_depends_on_the_seed_and_the_epoch_only() -> None:
    corpus = ListCorpus([7] * 40)

    def order(seed: int, first: int) -> list[list[int]]:
        samples = TrainingSamples(corpus, range(40), 7, seed)
        return [samples[index]["tokens"].tolist() for index in range(first, first + 40)]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(1, 0)
    assert order(0, 0) != order(0, 40)
    samples = TrainingSamples(corpus, range(40), 7, 0)
    far = samples[12345]["tokens"].tolist()  # reading out of order changes nothing
    assert samples[3]["tokens"].tolist() == order(0, 0)[3]
    assert TrainingSamples(corpus, range(40), 7, 0)[12345]["tokens"].tolist() == far


@given(SIZES, st.integers(1, 7))
def test_evaluation_reads_every_token_once(sizes: list[int], length: int) -> None:
    samples = EvaluationSamples(ListCorpus(sizes), range(len(sizes)), length)
    labels = [label for sample in samples for label in sample["labels"].tolist() if label != IGNORED]
    assert labels == list(range(1, sum(sizes)))
    for sample in samples:
        counted = sample["labels"] != IGNORED
        assert (sample["labels"][counted] == sample["tokens"][counted] + 1).all()


def test_an_empty_part_is_an_error() -> None:
    with pytest.raises(DataError, match="the training part is empty"):
        TrainingSamples(ListCorpus([3, 3]), range(0, 0), 4, seed=0)
    assert len(EvaluationSamples(ListCorpus([3, 3]), range(0, 0), 4)) == 0


@given(st.integers(0, 50), st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)))
def test_split(count: int, weights: tuple[int, int, int]) -> None:
    parts = split_documents(count, weights)
    assert [index for part in parts for index in part] == list(range(count))
    for part, weight in zip(parts, weights, strict=True):
        assert abs(len(part) - count * weight / sum(weights)) <= 1


@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2, 3, 4]), st.integers(0, 100))
def test_a_step_is_the_same_samples_in_any_layout(micro: int, accumulation: int, data: int, position: int) -> None:
    parts = [part for rank in range(data) for part in Sampler(micro, accumulation, data, rank).step(position)]
    total = micro * accumulation * data
    assert sorted(index for part in parts for index in part) == list(range(position, position + total))
    assert all(len(part) == micro for part in parts)


@given(st.integers(0, 40), st.integers(1, 7), st.integers(1, 5))
def test_evaluation_shares_are_exact(count: int, data: int, micro: int) -> None:
    parts = [part for rank in range(data) for part in share(count, data, rank, micro)]
    assert sorted(index for part in parts for index in part) == list(range(count))
    assert all(0 < len(part) <= micro for part in parts)


def test_synthetic_tokens() -> None:
    corpus = SyntheticCorpus(vocab=11, length=6, seed=0, documents=4)
    whole = corpus.slice(2, 0, 6)
    assert corpus.slice(2, 1, 4).tolist() == whole[1:4].tolist()
    assert whole.max() < 11 and whole.tolist() != corpus.slice(3, 0, 6).tolist()
