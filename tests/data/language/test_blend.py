"""Blends: exact shares at any position, every corpus in its own order, and lists that make no sense."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.blend_path import parse_blend
from paddock.data.config import CorpusConfig
from paddock.data.language.blend import BlendedSamples, BlendOrder, ChainedSamples, blend_weights
from paddock.data.language.corpus import Sample
from paddock.data.language.prepare import PreparedCorpus
from paddock.data.language.windows import EvaluationSamples, TrainingSamples
from paddock.errors import ConfigError, DataError
from paddock.models.config import IGNORED
from paddock.tasks.language_modeling import LanguageModeling
from paddock.testing.samples.corpora import NumberedCorpus, write_corpus


@pytest.mark.parametrize(
    ("path", "blend"),
    [
        ("a", [(None, "a")]),
        (["a"], [(None, "a")]),
        (["a", "b"], [(None, "a"), (None, "b")]),
        (["a", "b", "c"], [(None, "a"), (None, "b"), (None, "c")]),
        ([0.7, "a", 0.3, "b"], [(0.7, "a"), (0.3, "b")]),
        (["0.7", "a", "0.3", "b"], [(0.7, "a"), (0.3, "b")]),
        ([30, "a", 70, "b"], [(30.0, "a"), (70.0, "b")]),
        ([1, "./7"], [(1.0, "./7")]),
    ],
)
def test_what_may_be_written(path: list[float | str] | str, blend: list[tuple[float | None, str]]) -> None:
    assert parse_blend(path) == blend
    config = CorpusConfig(path=path)
    assert parse_blend(config.path or ()) == blend
    assert CorpusConfig(**config.model_dump(mode="json")) == config  # a saved recipe reads the same


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ([0.7, "a", -0.3, "b"], "the weight of b is -0.3"),
        (["nan", "a", 0.3, "b"], "the weight of a is nan"),
        (["inf", "a", 0.3, "b"], "the weight of a is inf"),
        ([0.0, "a", 0.0, "b"], "a, with weight 0, is as good as never read"),
        ([1.0, "a", 1e-9, "b"], "b, with weight 1e-09, is as good as never read"),
        ([0.7, "a", "b"], "do not alternate"),
        ([0.7, "a", 0.3], "do not alternate"),
        ([0.7, 0.3, "a", "b"], "do not alternate"),
        (["a", 0.7, "b", 0.3], "do not alternate"),
        ([7], "do not alternate"),
        (["a", "./a"], "a is there twice"),
        ([0.5, "x/../a", 0.5, "a"], "x/../a is there twice"),
        ([], "names no corpus"),
        ("", "names no corpus"),
        ([1, ""], "names no corpus"),
    ],
)
def test_what_may_not_be_written(path: list[float | str] | str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        CorpusConfig(path=path)
    assert caught.value.what.startswith("data.path = ") and caught.value.fix


WEIGHTS = st.lists(
    st.one_of(st.floats(1e-5, 1e3), st.integers(1, 10**12), st.sampled_from([0.1, 0.2, 0.7, 1 / 3, 1e-5])),
    min_size=1,
    max_size=6,
).filter(lambda weights: min(weights) > sum(weights) * 2.0**-17)


@settings(deadline=None, max_examples=60)
@given(WEIGHTS, st.integers(0, 10**9))
def test_shares_are_exact_at_every_border(weights: list[float], block: int) -> None:
    order = BlendOrder(weights, seed=0)
    total = sum(Fraction(str(weight)) for weight in weights)
    before, after = order.before(block), order.before(block + 1)
    assert sum(before) == block * order.block
    for weight, count, later in zip(weights, before, after, strict=True):
        assert abs(count - block * order.block * Fraction(str(weight)) / total) < 1
        assert later >= count


@settings(deadline=None, max_examples=15)
@given(WEIGHTS, st.integers(0, 3), st.integers(0, 1000))
def test_every_sample_of_every_corpus_once_and_in_order(weights: list[float], seed: int, block: int) -> None:
    order = BlendOrder(weights, seed)
    reached = order.before(block)
    for index in range(block * order.block, (block + 1) * order.block):
        corpus, number = order.find(index)
        assert number == reached[corpus]
        reached[corpus] += 1
    assert reached == order.before(block + 1)


def test_the_order_is_shuffled_and_a_pure_function() -> None:
    order, same, other = BlendOrder([0.5, 0.5], 0), BlendOrder([1, 1], 0), BlendOrder([0.5, 0.5], 1)
    wanted = [*range(50), *range(10**12, 10**12 + 50)]
    found = [order.find(index) for index in wanted]
    assert [same.find(index) for index in reversed(wanted)] == found[::-1]
    assert [other.find(index) for index in wanted] != found
    corpora = [corpus for corpus, _ in found[:50]]
    assert corpora != sorted(corpora) and corpora != [0, 1] * 25 and corpora != [1, 0] * 25
    assert order.find(10**12)[1] > 4 * 10**11


def test_samples_of_a_blend() -> None:
    parts = [TrainingSamples(NumberedCorpus([[5]] * count), range(count), 4, seed=0) for count in (3, 6)]
    blend = BlendedSamples(parts, blend_weights([(None, "a"), (None, "b")], [part.tokens for part in parts]), seed=0)
    assert blend.samples_per_epoch == 45 / 4
    order = BlendOrder([15, 30], 0)
    for index in (0, 1, 2, 70_000, 10**9):
        corpus, number = order.find(index)
        assert blend[index]["tokens"].tolist() == parts[corpus][number]["tokens"].tolist()
    assert pickle.loads(pickle.dumps(blend))[7]["tokens"].tolist() == blend[7]["tokens"].tolist()  # noqa: S301


def test_weights_by_tokens() -> None:
    assert blend_weights([(0.7, "a"), (0.3, "b")], [1, 1]) == [0.7, 0.3]
    assert blend_weights([(None, "a"), (None, "b")], [10**15 + 1, 10**12]) == [10**15 + 1, 10**12]
    with pytest.raises(DataError, match=r"b is too small for this blend(.|\n)*1 of 10000001 tokens"):
        blend_weights([(None, "a"), (None, "b")], [10**7, 1])


def test_evaluation_of_a_blend_is_all_of_every_corpus() -> None:
    parts: list[Sequence[Sample]] = [
        EvaluationSamples(NumberedCorpus(documents), range(len(documents)), 4)
        for documents in ([[3, 4], [2]], [[0]], [[1]], [[5], [1, 1]])
    ]
    samples = ChainedSamples(parts)
    assert len(samples) == 2 + 0 + 0 + 2
    labels = [label for sample in samples for label in sample["labels"].tolist() if label != IGNORED]
    assert labels == [*range(1, 9), *range(1, 7)]
    with pytest.raises(IndexError):
        samples[4]


def test_a_task_over_a_blend(tmp_path: Path) -> None:
    sizes = {"a": 40, "b": 20}
    for name, count in sizes.items():
        write_corpus(tmp_path / name, [[2, 3]] * count)
    prefixes: list[tuple[float | None, Path]] = [(0.9, tmp_path / "a"), (0.1, tmp_path / "b")]
    data = CorpusConfig(path=[0.9, "a", 0.1, "b"], split=(8, 2, 0), sequence_length=8)
    task = LanguageModeling(data, PreparedCorpus(prefixes, None), vocab=2**20, seed=0)
    samples = task.training_samples()
    assert samples.samples_per_epoch == (32 + 16) * 5 / 8
    read = [int(samples[index]["tokens"].max()) for index in range(500)]
    assert max(read) < 32 * 5  # nothing of the validation parts
    held_out = task.validation_samples()
    labels = np.concatenate([sample["labels"] for sample in held_out])
    assert sorted(labels[labels != IGNORED].tolist()) == sorted([*range(161, 200), *range(81, 100)])
    assert set(task.collate([samples[0], samples[1]])) == {"tokens", "labels"}
    again = pickle.loads(pickle.dumps(task))  # noqa: S301 (our own bytes): what loader processes get
    assert again.training_samples()[3]["tokens"].tolist() == samples[3]["tokens"].tolist()


def test_a_task_without_validation_documents(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a", [[5]] * 10)
    data = CorpusConfig(path="a", split=(1, 0, 0), sequence_length=4)
    task = LanguageModeling(data, PreparedCorpus([(None, tmp_path / "a")], None), vocab=100, seed=0)
    with pytest.raises(DataError, match=r"the validation part is empty(.|\n)*0 of 10 documents"):
        task.validation_samples()
