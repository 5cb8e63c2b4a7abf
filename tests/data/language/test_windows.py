"""Samples for language modelling: nothing lost, nothing twice, and the same for everyone."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.language.corpus import SyntheticCorpus, split_documents
from paddock.data.language.windows import DocumentEnds, EvaluationSamples, SlidingSamples, TrainingSamples
from paddock.data.loading.sampler import Shuffle
from paddock.errors import DataError
from paddock.models.config import IGNORED
from paddock.testing.samples.corpora import HugeCorpus, NumberedCorpus, tokens_of

DOCUMENTS = st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=10).filter(
    lambda documents: sum(map(sum, documents)) >= 2
)
"""Documents with no, one and several sequences, empty ones among them."""


@given(DOCUMENTS, st.integers(1, 9), st.integers(0, 3))
def test_training_reads_every_token_once_an_epoch(documents: list[list[int]], length: int, seed: int) -> None:
    samples = TrainingSamples(NumberedCorpus(documents), range(len(documents)), length, seed)
    tokens, epochs = sum(map(sum, documents)), 3
    # As many samples as end exactly at the end of an epoch: length × epochs of them.
    seen = Counter(token for i in range(tokens * epochs) for token in samples[i]["tokens"].tolist())
    assert seen == dict.fromkeys(range(tokens), epochs * length)
    assert samples.samples_per_epoch == tokens / length


@given(DOCUMENTS, st.integers(1, 9), st.integers(0, 3), st.data())
def test_training_samples_one_by_one(documents: list[list[int]], length: int, seed: int, data: st.DataObject) -> None:
    """Against the definition, token by token: epochs of shuffled documents in a row, windows that share one token,
    shuffled among those that begin in the same epoch."""
    corpus = NumberedCorpus(documents)
    start = data.draw(st.integers(0, len(documents) - 1))
    part = range(start, data.draw(st.integers(start + 1, len(documents))))
    epoch_tokens = sum(len(tokens_of(corpus, document)) for document in part)
    if epoch_tokens < 2:
        return
    epochs = 3
    row: list[int] = []
    for epoch in range(epochs + 2 + length // epoch_tokens):
        order = np.arange(len(part))
        np.random.default_rng([seed, epoch, 1]).shuffle(order)
        row += [token for position in order for token in tokens_of(corpus, part[position])]
    expected = []
    for epoch in range(epochs):
        begins = range(-(-epoch * epoch_tokens // length) * length, (epoch + 1) * epoch_tokens, length)
        shuffled = Shuffle(len(begins), seed, epoch, 2)
        expected += [row[begins[number] : begins[number] + length + 1] for number in shuffled]
    samples = TrainingSamples(corpus, part, length, seed)
    for index, window in enumerate(expected):
        sample = samples[index]
        assert sample["tokens"].tolist() == window[:-1] and sample["labels"].tolist() == window[1:]


def test_documents_stay_whole_and_in_their_order_inside() -> None:
    samples = TrainingSamples(NumberedCorpus([[2, 3], [5], [4, 1], [1, 1, 3]]), range(4), 20, seed=0)
    tokens = samples[0]["tokens"].tolist()
    documents = [tokens[start : start + 5] for start in range(0, 20, 5)]
    assert sorted(documents) == [list(range(start, start + 5)) for start in range(0, 20, 5)]
    assert documents != sorted(documents)


def test_order_depends_on_the_seed_and_the_epoch_only() -> None:
    corpus = NumberedCorpus([[7]] * 40)

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
    assert pickle.loads(pickle.dumps(samples))[12345]["tokens"].tolist() == far  # noqa: S301 (our own bytes)


@given(DOCUMENTS, st.integers(1, 9), st.data())
def test_evaluation_reads_every_token_once(documents: list[list[int]], length: int, data: st.DataObject) -> None:
    corpus = NumberedCorpus(documents)
    start = data.draw(st.integers(0, len(documents)))
    part = range(start, data.draw(st.integers(start, len(documents))))
    tokens = [token for document in part for token in tokens_of(corpus, document)]
    samples = EvaluationSamples(corpus, part, length)
    labels = [label for sample in samples for label in sample["labels"].tolist() if label != IGNORED]
    assert labels == tokens[1:]
    for sample in samples:
        counted = sample["labels"] != IGNORED
        assert counted.any() and len(counted) == len(sample["tokens"]) == length
        assert (sample["labels"][counted] == sample["tokens"][counted] + 1).all()


@given(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3), max_size=6), st.integers(2, 9), st.data())
def test_windows_that_slide_ask_for_every_token_once(
    documents: list[list[int]], length: int, data: st.DataObject
) -> None:
    """And they are those of Hugging Face's documentation."""
    corpus, stride = NumberedCorpus(documents), data.draw(st.integers(1, length - 1))
    everything = range(len(documents))
    tokens = [token for document in everything for token in tokens_of(corpus, document)]
    expected, reached = [], 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + length, len(tokens))
        if len(tokens) > 1:
            expected.append((tokens[begin:end], tokens[max(reached, 1) : end]))
        reached = end
        if end == len(tokens):
            break
    samples = SlidingSamples(corpus, everything, length, stride)
    assert len(samples) == len(expected)
    for sample, (window, scored) in zip(samples, expected, strict=True):
        assert sample["tokens"].tolist() == window + [0] * (length - len(window))
        assert sample["labels"].tolist() == scored
        assert (sample["tokens"][sample["places"]] + 1 == sample["labels"]).all()
    assert [label for sample in samples for label in sample["labels"].tolist()] == tokens[1:]


def test_windows_that_slide_mind_the_ends_of_documents() -> None:
    ends = DocumentEnds(token=3, reset_positions=True, reset_attention=True, mask_loss=True)
    samples = SlidingSamples(NumberedCorpus([[9]]), range(1), 6, 2, ends=ends)
    first, second = samples[0], samples[1]
    assert first["labels"].tolist() == [1, 2, 3, IGNORED, 5] and second["labels"].tolist() == [6, 7]
    assert second["tokens"].tolist() == [2, 3, 4, 5, 6, 7] and second["places"].tolist() == [3, 4]
    assert second["positions"].tolist() == [0, 1, 0, 1, 2, 3] and second["segments"].tolist() == [0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("documents", [[[2**31 - 1]] * 3, [[2**31 - 1, 2**31 - 1], [5], [2**31 - 1]]])
def test_corpora_beyond_two_to_the_31(documents: list[list[int]]) -> None:
    corpus, length = HugeCorpus(documents), 2**20
    count = int(corpus.sizes.sum(dtype=np.int64))
    samples = TrainingSamples(corpus, range(3), length, seed=0)
    seen = set()
    for index in range(0, int(samples.samples_per_epoch), 500):
        tokens = samples[index]["tokens"]
        seen.add(int(tokens[0]))
        steps = (np.diff(tokens) - 1) % corpus.prime
        assert np.count_nonzero(steps) <= 2  # where documents meet
    assert len(seen) > 10
    evaluation = EvaluationSamples(corpus, range(3), length)
    assert len(evaluation) == -(-(count - 1) // length)
    last = evaluation[len(evaluation) - 1]["labels"]
    assert last[last != IGNORED][-1] == (count - 1) % corpus.prime


def test_an_empty_part_is_an_error() -> None:
    with pytest.raises(DataError, match="the training part is empty"):
        TrainingSamples(NumberedCorpus([[3], [3]]), range(0, 0), 4, seed=0)
    with pytest.raises(DataError, match="1 documents hold 1 tokens"):
        TrainingSamples(NumberedCorpus([[3], [0, 1]]), range(1, 2), 4, seed=0)
    assert len(EvaluationSamples(NumberedCorpus([[3], [3]]), range(0, 0), 4)) == 0


@given(st.integers(0, 50), st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)))
def test_split(count: int, weights: tuple[int, int, int]) -> None:
    parts = split_documents(count, weights)
    assert [index for part in parts for index in part] == list(range(count))
    for part, weight in zip(parts, weights, strict=True):
        assert abs(len(part) - count * weight / sum(weights)) <= 1


@pytest.mark.parametrize(
    ("count", "weights", "lengths"),
    [
        (1000, (949, 50, 1), (949, 50, 1)),
        (10, (949, 50, 1), (9, 1, 0)),  # 9.49 and 9.99
        (100, (949, 50, 1), (95, 5, 0)),  # 94.9 and 99.9
        (5, (90, 10, 0), (4, 1, 0)),  # 4.5: a half goes to the even number
        (15, (90, 10, 0), (14, 1, 0)),  # 13.5
        (3, (1, 1, 1), (1, 1, 1)),
        (4, (1, 1, 1), (1, 2, 1)),  # 1.33 and 2.67
        (7, (0.98, 0.01, 0.01), (7, 0, 0)),  # 6.86 and 6.93
        (10_000_019, (969, 30, 1), (9_690_018, 300_001, 10_000)),
        (9, (0, 1, 0), (0, 9, 0)),
    ],
)
def test_split_rounds_as_megatron_does(
    count: int, weights: tuple[float, float, float], lengths: tuple[int, ...]
) -> None:
    assert tuple(map(len, split_documents(count, weights))) == lengths


def test_synthetic_tokens() -> None:
    corpus = SyntheticCorpus(vocab=11, length=6, seed=0, count=4)
    whole = corpus.slice(2, 0, 6)
    assert corpus.slice(2, 1, 4).tolist() == whole[1:4].tolist()
    assert whole.max() < 11 and whole.tolist() != corpus.slice(3, 0, 6).tolist()
    assert corpus.sizes.tolist() == [6] * 4 and corpus.documents.tolist() == [0, 1, 2, 3, 4]
