"""Span corruption: what is cut out can be put back, and as much is cut out as was asked for."""

from __future__ import annotations

from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.language.corpus import SyntheticCorpus
from paddock.data.language.passages import EvaluationPassages, Passages, TrainingPassages
from paddock.data.language.spans import SpanCorruption, SpanOptions, SpanTokens
from paddock.errors import ConfigError
from paddock.models.config import IGNORED
from paddock.testing.samples.corpora import NumberedCorpus

PAD, END = 0, 1
SENTINELS = tuple(range(10_099, 9_999, -1))
TOKENS = SpanTokens(PAD, END, SENTINELS)
FIRST = 100_000
"""The text's tokens: FIRST, FIRST + 1, …"""


def put_back(source: list[int], target: list[int]) -> list[int]:
    """The text: every sentinel of the input replaced by the span behind it in the target."""
    assert source[-1] == target[-1] == END
    spans: dict[int, list[int]] = {}
    for token in target[:-1]:
        if token in SENTINELS:
            assert token == SENTINELS[len(spans)]
            span = spans[token] = []
        else:
            span.append(token)
    assert [token for token in source if token in SENTINELS] == list(spans)
    return [text for token in source[:-1] for text in spans.get(token, [token])]


OPTIONS = st.builds(
    SpanOptions,
    encoder_length=st.integers(3, 120),
    decoder_length=st.integers(3, 60),
    masking=st.floats(0.01, 0.9),
    mean_span=st.floats(1, 8),
)


@given(OPTIONS, st.data())
def test_the_passage_can_be_put_together_again(options: SpanOptions, data) -> None:
    objective = SpanCorruption(options, TOKENS)
    length = data.draw(st.integers(2, objective.longest))
    text = np.arange(FIRST, FIRST + length)
    source, target = objective.corrupt(text, np.random.default_rng(data.draw(st.integers(0, 99))))
    assert put_back(source.tolist(), target.tolist()) == text.tolist()
    assert len(source) <= options.encoder_length and len(target) <= options.decoder_length
    named = np.isin(source, SENTINELS)
    assert not named[0] and not (named[1:] & named[:-1]).any() and named[-2]
    removed = len(target) - 1 - named.sum()
    assert removed == min(max(round(length * options.masking), 1), length - 1)
    assert named.sum() == min(max(round(removed / options.mean_span), 1), removed, length - removed)


@given(OPTIONS)
def test_a_longer_passage_would_not_fit(options: SpanOptions) -> None:
    longest = SpanCorruption(options, TOKENS).longest
    roomy = SpanOptions(1000, 1000, options.masking, options.mean_span)
    longer = np.arange(FIRST, FIRST + longest + 1)
    source, target = SpanCorruption(roomy, SpanTokens(PAD, END, tuple(range(1000)))).corrupt(
        longer, np.random.default_rng(0)
    )
    assert len(source) > options.encoder_length or len(target) > options.decoder_length


def test_lengths_as_t5_computes_them() -> None:
    """T5 and the Hugging Face example read 568 tokens for inputs of 512 and targets of 114."""
    objective = SpanCorruption(SpanOptions(), TOKENS)
    assert objective.longest == 568
    source, target = objective.corrupt(np.arange(FIRST, FIRST + 568), np.random.default_rng(0))
    assert (len(source), len(target)) == (512, 114)


def test_a_sample() -> None:
    """Spelt out: two spans, padded, the decoder one token behind its labels."""
    options = SpanOptions(encoder_length=12, decoder_length=8, masking=0.4, mean_span=2)
    samples = EvaluationPassages(NumberedCorpus([[3, 4]], FIRST), range(1), SpanCorruption(options, TOKENS), seed=0)
    assert len(samples) == 1
    sample = samples[0]
    assert {name: (array.dtype, len(array)) for name, array in sample.items()} == {
        "tokens": (np.int64, 12),
        "mask": (np.int64, 12),
        "decoder_tokens": (np.int64, 8),
        "labels": (np.int64, 8),
    }
    source = sample["tokens"][sample["mask"] == 1].tolist()
    labels = sample["labels"][sample["labels"] != IGNORED].tolist()
    assert put_back(source, labels) == list(range(FIRST, FIRST + 7))
    assert sample["mask"].tolist() == [1] * len(source) + [0] * (12 - len(source))
    assert set(sample["tokens"][len(source) :]) == {PAD}
    assert sample["labels"].tolist() == labels + [IGNORED] * (8 - len(labels))
    shifted = [PAD, *labels, *[PAD] * 8][:8]
    assert sample["decoder_tokens"].tolist() == shifted


def test_the_decoder_may_begin_with_another_token() -> None:
    tokens = SpanTokens(PAD, END, SENTINELS, start=7)
    samples = EvaluationPassages(NumberedCorpus([[9]]), range(1), SpanCorruption(SpanOptions(), tokens), seed=0)
    assert samples[0]["decoder_tokens"][0] == 7


def test_marks_of_words_are_taken_off() -> None:
    ids = np.arange(FIRST + 100)
    objective = SpanCorruption(SpanOptions(), TOKENS, ids - (ids >= FIRST) * (ids % 2))
    sample = EvaluationPassages(NumberedCorpus([[60]], FIRST), range(1), objective, seed=0)[0]
    source, labels = sample["tokens"][sample["mask"] == 1], sample["labels"][sample["labels"] != IGNORED]
    assert put_back(source.tolist(), labels.tolist()) == [token - token % 2 for token in range(FIRST, FIRST + 60)]


def test_amounts_and_span_lengths() -> None:
    """15 % goes, spans are 3 long on average, and every way to cut is equally likely."""
    objective, generator, samples = SpanCorruption(SpanOptions(), TOKENS), np.random.default_rng(0), 3000
    text = np.arange(FIRST, FIRST + 568)
    lengths, rates = [], np.zeros(568)
    for _ in range(samples):
        _, target = objective.corrupt(text, generator)
        borders = np.flatnonzero(np.isin(target, SENTINELS))
        lengths.append(np.diff(borders, append=len(target) - 1) - 1)
        rates[target[target >= FIRST] - FIRST] += 1
    spans = np.asarray(lengths)
    assert spans.shape == (samples, 28) and (spans.sum(axis=1) == 85).all()
    for size in (1, 2, 3, 6):
        # Of the ways to cut 85 tokens into 28 parts, those whose first part has this size.
        expected = comb(85 - size - 1, 26) / comb(84, 27)
        for part in (0, 13, 27):
            share = (spans[:, part] == size).mean()
            assert abs(share - expected) < 5 * sqrt(expected * (1 - expected) / samples)
    assert rates[0] == 0 and rates[-1] == samples  # a passage begins with text and ends with a span
    middle = rates[100:-100] / samples
    assert abs(middle.mean() - 85 / 568) < 0.005
    assert abs(middle - 85 / 568).max() < 6 * sqrt(0.15 * 0.85 / samples)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=6), st.integers(0, 5))
def test_an_epoch_holds_all_text_of_two_tokens_and_more(documents: list[list[int]], seed: int) -> None:
    options = SpanOptions(encoder_length=20, decoder_length=10)
    documents = [*documents, [5, 5]]
    corpus, objective = NumberedCorpus(documents, FIRST), SpanCorruption(options, TOKENS)
    samples = TrainingPassages(corpus, range(len(documents)), objective, seed)
    read: list[int] = []
    for index in range(int(samples.samples_per_epoch)):
        sample = samples[index]
        labels = sample["labels"][sample["labels"] != IGNORED]
        read += put_back(sample["tokens"][sample["mask"] == 1].tolist(), labels.tolist())
    passages = Passages(corpus, range(len(documents)), objective.longest)
    texts = [np.concatenate(passages.read(index)).tolist() for index in range(len(passages))]
    assert sorted(read) == [token for text in texts if len(text) > 1 for token in text]


def test_mock_data() -> None:
    corpus = SyntheticCorpus(vocab=9000, length=600, seed=0)
    samples = TrainingPassages(corpus, range(8), SpanCorruption(SpanOptions(), TOKENS), seed=0)
    assert len(samples[3]["tokens"]) == 512


@pytest.mark.parametrize(
    ("options", "sentinels", "message"),
    [
        (SpanOptions(masking=0.0), 100, "masking = 0.0"),
        (SpanOptions(masking=1.0), 100, "masking = 1.0"),
        (SpanOptions(mean_span=0.5), 100, "mean_span = 0.5"),
        (SpanOptions(encoder_length=2), 100, "at least 3"),
        (SpanOptions(decoder_length=2), 100, "at least 3"),
        (SpanOptions(encoder_length=4096, decoder_length=1024), 100, "has 227 spans, but the tokenizer 100 sentinels"),
        (SpanOptions(), 0, "has 28 spans, but the tokenizer 0 sentinels"),
    ],
)
def test_options_that_cannot_work(options: SpanOptions, sentinels: int, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        SpanCorruption(options, SpanTokens(PAD, END, SENTINELS[:sentinels]))
    assert message in str(error.value)
