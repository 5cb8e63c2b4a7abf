"""Masked language modelling: what is hidden, what is shown instead, and pairs of texts."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.language.corpus import Sample, SyntheticCorpus
from paddock.data.language.masking import MaskedLanguageModel, MaskOptions, MaskTokens, _fill
from paddock.data.language.passages import EvaluationPassages, TrainingPassages
from paddock.errors import ConfigError, DataError
from paddock.models.config import IGNORED
from paddock.testing.samples.corpora import NumberedCorpus

PAD, CLS, SEP, MASK = 0, 1, 2, 3
FIRST = 4
"""The text's tokens: FIRST, FIRST + 1, …"""
TOKENS = MaskTokens(CLS, SEP, MASK, PAD, vocab=2000)
BERT = MaskedLanguageModel(MaskOptions(sequence_length=128), TOKENS)


def original(sample: Sample) -> list[int]:
    """The row of tokens as it was, without padding."""
    row = np.where(sample["labels"] != IGNORED, sample["labels"], sample["tokens"])
    return row[sample["mask"] == 1].tolist()


def within(count: float, total: float, expected: float) -> bool:
    """Whether a share is as expected, up to five standard deviations of a binomial count."""
    return abs(count / total - expected) < 5 * sqrt(expected * (1 - expected) / total)


DOCUMENTS = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6).map(
    lambda documents: [*documents, [3, 4], [2]]
)


@given(DOCUMENTS, st.integers(6, 40), st.floats(0.05, 0.9), st.integers(0, 9))
def test_the_text_can_be_put_together_again(documents, length: int, masking: float, seed: int) -> None:
    objective = MaskedLanguageModel(MaskOptions(length, masking), TOKENS)
    samples = EvaluationPassages(NumberedCorpus(documents, FIRST), range(len(documents)), objective, seed)
    text: list[int] = []
    for sample in samples:
        assert {name: (array.dtype, array.shape) for name, array in sample.items()} == dict.fromkeys(
            ("tokens", "token_types", "mask", "labels"), (np.dtype(np.int64), (length,))
        )
        row = original(sample)
        assert row[0] == CLS and row[-1] == SEP
        assert sample["mask"].tolist() == [1] * len(row) + [0] * (length - len(row))
        assert set(sample["tokens"][len(row) :].tolist()) <= {PAD} and not sample["token_types"].any()
        chosen = sample["labels"] != IGNORED
        assert chosen.sum() == max(1, round(masking * (len(row) - 2))) <= objective.most_predictions
        assert not chosen[0] and not chosen[len(row) - 1 :].any()
        text += row[1:-1]
    assert text == list(range(FIRST, FIRST + sum(map(sum, documents))))


def test_eighty_ten_ten() -> None:
    samples = TrainingPassages(NumberedCorpus([[126]] * 15, FIRST), range(15), BERT, seed=0)
    number, places = 1500, np.zeros(128)
    masked = changed = same = 0
    for index in range(number):
        sample = samples[index]
        chosen = sample["labels"] != IGNORED
        places += chosen
        seen, true = sample["tokens"][chosen], sample["labels"][chosen]
        masked += (seen == MASK).sum()
        same += (seen == true).sum()
        changed += ((seen != MASK) & (seen != true)).sum()
        assert seen[seen != MASK].min(initial=FIRST) >= FIRST and seen.max() < TOKENS.vocab
    total = places.sum()
    assert total == number * round(0.15 * 126) == masked + changed + same
    assert within(masked, total, 0.8) and within(changed, total, 0.1) and within(same, total, 0.1)
    assert all(within(count, number, 19 / 126) for count in places[1:127])
    assert places[0] == places[127] == 0


def test_random_tokens_are_any_ordinary_ones() -> None:
    tokens = MaskTokens(cls=7, sep=0, mask=4, pad=9, vocab=10)
    objective = MaskedLanguageModel(MaskOptions(sequence_length=100, masking=0.9), tokens)
    samples = TrainingPassages(SyntheticCorpus(vocab=1, length=98, seed=0), range(3), objective, seed=0)
    # The whole text is [SEP]: nothing may be chosen.
    assert (samples[0]["labels"] == IGNORED).all() and (samples[0]["tokens"][1:99] == 0).all()
    plain = TrainingPassages(NumberedCorpus([[1]] * 5, first=1), range(3), objective, seed=0)
    seen = [int(plain[index]["tokens"][1]) for index in range(3000)]
    assert set(seen) == {1, 2, 3, 4, 5, 6, 8}


def test_special_tokens_in_the_text_are_never_chosen() -> None:
    objective = MaskedLanguageModel(MaskOptions(sequence_length=20, masking=0.5), TOKENS)
    corpus = NumberedCorpus([[8]])  # the tokens 0 to 7: four special ones and four others
    for index in range(50):
        sample = TrainingPassages(corpus, range(1), objective, seed=0)[index]
        labels = sample["labels"][sample["labels"] != IGNORED]
        assert len(labels) == 2 and labels.min() >= FIRST


def test_whole_words() -> None:
    continuation = np.random.default_rng(0).random(TOKENS.vocab) < 0.4
    objective = MaskedLanguageModel(MaskOptions(128, whole_words=True), TOKENS, continuation)
    samples = TrainingPassages(NumberedCorpus([[9, 40, 126, 1]] * 10, FIRST), range(10), objective, seed=0)
    counts, chosen_total, text_total = [], 0, 0
    for index in range(400):
        sample = samples[index]
        chosen, row = sample["labels"] != IGNORED, np.asarray(original(sample))
        inside = np.arange(1, len(row) - 1)
        follows = inside[1:][continuation[row[inside[1:]]]]
        assert (chosen[follows] == chosen[follows - 1]).all()
        counts.append(chosen.sum() - max(1, round(0.15 * len(inside))))
        chosen_total, text_total = chosen_total + chosen.sum(), text_total + len(inside)
    assert np.mean(np.asarray(counts) == 0) > 0.9  # small words fill what large ones leave
    assert max(counts) <= 0 and abs(chosen_total / text_total - 0.15) < 0.01


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30), st.integers(1, 40), st.integers(0, 99))
def test_words_are_taken_while_they_fit(sizes: list[int], budget: int, seed: int) -> None:
    taken, left = [], budget
    for word in np.random.default_rng(seed).permutation(len(sizes)):
        if sizes[word] <= left:
            taken.append(word)
            left -= sizes[word]
    chosen = _fill(np.asarray(sizes), budget, np.random.default_rng(seed)).tolist()
    assert chosen == (taken or [int(np.argmin(sizes))])


def test_marks_of_words_are_taken_off() -> None:
    """Odd tokens are marks that continue a word; the model knows each by the even token before it."""
    ids = np.arange(TOKENS.vocab)
    marked = (ids % 2 == 1) & (ids > MASK)
    objective = MaskedLanguageModel(MaskOptions(128, 0.5, whole_words=True), TOKENS, marked, ids - marked)
    samples = TrainingPassages(NumberedCorpus([[120]] * 5, FIRST), range(5), objective, seed=0)
    for index in range(20):
        sample = samples[index]
        row = np.asarray(original(sample)[1:-1])
        assert (row[0::2] == row[1::2]).all() and (row % 2 == 0).all()
        chosen = sample["labels"][1:121] != IGNORED
        assert chosen.sum() == 60 and (chosen[0::2] == chosen[1::2]).all()
        assert not marked[sample["tokens"]].any()


def test_a_word_that_alone_is_too_long_is_taken_whole() -> None:
    continuation = np.ones(TOKENS.vocab, dtype=np.bool_)
    objective = MaskedLanguageModel(MaskOptions(20, whole_words=True), TOKENS, continuation)
    sample = TrainingPassages(NumberedCorpus([[6]], FIRST), range(1), objective, seed=0)[0]
    assert sample["labels"].tolist() == [IGNORED, *range(FIRST, FIRST + 6), *[IGNORED] * 13]


@given(DOCUMENTS, st.integers(6, 40), st.integers(0, 99))
def test_pairs(documents: list[list[int]], length: int, index: int) -> None:
    corpus = NumberedCorpus(documents, FIRST)
    homes = np.repeat(np.arange(len(documents)), [sum(document) for document in documents])
    sentence_ends = set((np.cumsum(corpus.sizes) + FIRST).tolist())
    objective = MaskedLanguageModel(MaskOptions(length, pairs=True), TOKENS)
    sample = TrainingPassages(corpus, range(len(documents)), objective, seed=0)[index]
    row = original(sample)
    middle = row.index(SEP)
    first, second = row[1:middle], row[middle + 1 : -1]
    assert row[0] == CLS and row[-1] == SEP and first and second
    types = [0] * (middle + 1) + [1] * (len(second) + 1) + [0] * (length - len(row))
    assert sample["token_types"].tolist() == types
    assert (sample["labels"][[0, middle, len(row) - 1]] == IGNORED).all()
    for text in (first, second):
        assert text == list(range(text[0], text[0] + len(text)))
        assert len({homes[token - FIRST] for token in text}) == 1
    if sample["is_next"]:
        assert second[0] == first[-1] + 1
        between = [end for end in sentence_ends if first[0] < end <= second[-1]]
        assert second[0] in sentence_ends or not between
    assert (homes[first[0] - FIRST] == homes[second[0] - FIRST]) == bool(sample["is_next"])


def test_half_of_the_pairs_follow_each_other() -> None:
    objective = MaskedLanguageModel(MaskOptions(64, pairs=True), TOKENS)
    samples = TrainingPassages(NumberedCorpus([[10] * 9, [61]] * 8, FIRST), range(16), objective, seed=0)
    assert within(sum(int(samples[index]["is_next"]) for index in range(2000)), 2000, 0.5)


def test_parts_that_cannot_work() -> None:
    pairs = MaskedLanguageModel(MaskOptions(64, pairs=True), TOKENS)
    with pytest.raises(DataError, match="in one document"):
        TrainingPassages(NumberedCorpus([[0], [9, 300], [1]]), range(3), pairs, seed=0)
    with pytest.raises(DataError, match="the corpus has token 2003, but the vocabulary only 2000"):
        TrainingPassages(NumberedCorpus([[4]], 2000), range(1), BERT, seed=0)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (MaskOptions(masking=0.0), "masking = 0.0"),
        (MaskOptions(masking=1.5), "masking = 1.5"),
        (MaskOptions(sequence_length=2), "sequence_length = 2"),
        (MaskOptions(sequence_length=4, pairs=True), "sequence_length = 4"),
        (MaskOptions(whole_words=True), "whole_words needs a tokenizer"),
    ],
)
def test_options_that_cannot_work(options: MaskOptions, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MaskedLanguageModel(options, TOKENS)
