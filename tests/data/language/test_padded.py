"""Padded samples: a document each, no label behind its end, and what does not fit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.language.padded import PaddedDocuments, TrainingDocuments
from paddock.errors import DataError
from paddock.models.config import IGNORED
from paddock.testing.samples.corpora import NumberedCorpus, tokens_of

DOCUMENTS = [[5], [3, 4], [1], [2, 0, 6], [9]]


@given(
    documents=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=8),
    length=st.integers(1, 30),
    data=st.data(),
)
def test_a_sample_is_a_document(documents: list[list[int]], length: int, data: st.DataObject) -> None:
    corpus = NumberedCorpus(documents, first=1)
    begin = data.draw(st.integers(0, len(documents)))
    part = range(begin, data.draw(st.integers(begin, len(documents))))
    found = PaddedDocuments(corpus, part, length, truncate=True)
    wanted = [tokens for number in part if len(tokens := tokens_of(corpus, number)) > 1]
    assert len(found) == len(wanted)
    assert found.num_cut == sum(len(tokens) > length + 1 for tokens in wanted)
    for sample, tokens in zip(found, wanted, strict=True):
        whole = tokens[: length + 1]
        assert sample["tokens"].tolist() == (whole + [0] * length)[:length]
        assert sample["labels"].tolist() == (whole[1:] + [IGNORED] * length)[:length]


def test_every_epoch_has_every_document_once_in_another_order() -> None:
    corpus = NumberedCorpus([[4 + number] for number in range(50)], first=1)
    samples = TrainingDocuments(PaddedDocuments(corpus, range(50), 60, truncate=False), seed=7)
    assert samples.samples_per_epoch == 50 and samples.tokens == sum(range(4, 54))
    firsts = [int(samples[index]["tokens"][0]) for index in range(100)]
    assert sorted(firsts[:50]) == sorted(firsts[50:]) and len(set(firsts)) == 50
    assert firsts[:50] != firsts[50:] and firsts[:50] != sorted(firsts[:50])
    again = pickle.loads(pickle.dumps(samples))  # noqa: S301
    assert [int(again[index]["tokens"][0]) for index in (3, 77, 3)] == [firsts[3], firsts[77], firsts[3]]
    other = TrainingDocuments(PaddedDocuments(corpus, range(50), 60, truncate=False), seed=8)
    assert [int(other[index]["tokens"][0]) for index in range(50)] != firsts[:50]


def test_what_is_too_long() -> None:
    corpus = NumberedCorpus(DOCUMENTS)
    with pytest.raises(DataError) as refused:
        PaddedDocuments(corpus, range(1, 5), 6, truncate=False)
    assert refused.value.what == "document 4 of the corpus has 8 tokens"
    assert "has room for 7, and 2 of 4 documents are longer" in refused.value.why
    assert "--data.sequence-length 8" in refused.value.fix and "--data.truncate" in refused.value.fix
    assert PaddedDocuments(corpus, range(5), 8, truncate=False).num_cut == 0
    assert np.array_equal(PaddedDocuments(corpus, range(5), 8, truncate=False)[3]["labels"][-1:], [29])


def test_nothing_to_learn_from() -> None:
    documents = PaddedDocuments(NumberedCorpus([[1], [0]]), range(2), 8, truncate=False)
    with pytest.raises(DataError, match="the training part is empty"):
        TrainingDocuments(documents, 0)
