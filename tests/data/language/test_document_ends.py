"""Positions, segments and labels around the ends of documents, against a slow reading of Megatron-LM's rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.config import CorpusConfig
from paddock.data.language.windows import DocumentEnds, EvaluationSamples, TrainingSamples, find_document_ends
from paddock.data.tokenizers.load import train_tokenizer
from paddock.errors import ConfigError
from paddock.models.config import IGNORED
from paddock.testing.samples.corpora import NumberedCorpus

END = 3


def slowly(tokens: list[int], labels: list[int]) -> tuple[list[int], np.ndarray, list[int]]:
    """Positions, who sees whom, and labels: each end of a document cuts off all that came before it."""
    length = len(tokens)
    sees = np.tril(np.ones((length, length), dtype=bool))
    positions, labels = list(range(length)), list(labels)
    previous = 0
    for place, token in enumerate(tokens):
        if token != END:
            continue
        labels[place] = IGNORED
        sees[place + 1 :, : place + 1] = False
        for later in range(place + 1, length):
            positions[later] -= place + 1 - previous
        previous = place + 1
    return positions, sees, labels


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30))
def test_marks_are_megatrons(row: list[int]) -> None:
    tokens, labels = row[:-1], row[1:]
    positions, sees, counted = slowly(tokens, labels)
    ends = DocumentEnds(END, reset_positions=True, reset_attention=True, mask_loss=True)
    marked = ends.mark({"tokens": np.array(tokens), "labels": np.array(labels)})
    segments = marked["segments"]
    same = segments[:, None] == segments[None, :]
    assert marked["positions"].tolist() == positions
    assert (same & np.tril(np.ones_like(same))).tolist() == sees.tolist()
    assert marked["labels"].tolist() == counted and marked["tokens"].tolist() == tokens


@pytest.mark.parametrize(
    ("ends", "names", "is_masked"),
    [
        (None, {"tokens", "labels"}, False),
        (DocumentEnds(END, reset_positions=True), {"tokens", "labels", "positions"}, False),
        (DocumentEnds(END, reset_attention=True), {"tokens", "labels", "segments"}, False),
        (DocumentEnds(END, mask_loss=True), {"tokens", "labels"}, True),
    ],
)
def test_a_sample_has_what_was_asked_for(ends: DocumentEnds | None, names: set[str], is_masked: bool) -> None:
    corpus = NumberedCorpus([[4]])  # tokens 0, 1, 2, 3, again and again
    training = TrainingSamples(corpus, range(1), 6, seed=0, ends=ends)[0]
    evaluation = EvaluationSamples(corpus, range(1), 6, ends=ends)[0]
    assert set(training) == set(evaluation) == names
    assert all(array.shape == (6,) and array.dtype == np.int64 for array in (*training.values(), *evaluation.values()))
    assert training["labels"].tolist() == [1, 2, 3, IGNORED if is_masked else 0, 1, 2]
    assert evaluation["labels"].tolist() == [1, 2, 3, IGNORED, IGNORED, IGNORED]
    if "positions" in names:
        assert training["positions"].tolist() == [0, 1, 2, 3, 0, 1]
    if "segments" in names:
        assert training["segments"].tolist() == [0, 0, 0, 0, 1, 1]


def test_where_the_token_comes_from() -> None:
    tokenizer = train_tokenizer(["some text"], 300, "<end>")
    asked = CorpusConfig(path="a", eod_mask_loss=True)
    assert find_document_ends(CorpusConfig(path="a"), tokenizer) is None
    assert find_document_ends(asked, tokenizer) == DocumentEnds(tokenizer.end_of_text_id or 0, mask_loss=True)
    given = CorpusConfig(path="a", reset_position_ids=True, eod=7)
    assert find_document_ends(given, None) == DocumentEnds(7, reset_positions=True)


@pytest.mark.parametrize(
    ("eod", "has_tokenizer", "message"),
    [
        (None, False, r"not known(.|\n)*--data\.eod"),
        (7, True, r"data\.eod = 7(.|\n)*ends documents with token 0"),
    ],
)
def test_unknown_and_contradicting_tokens(eod: int | None, has_tokenizer: bool, message: str) -> None:
    tokenizer = train_tokenizer(["some text"], 300, "<end>") if has_tokenizer else None
    with pytest.raises(ConfigError, match=message):
        find_document_ends(CorpusConfig(path="a", reset_attention_mask=True, eod=eod), tokenizer)


def test_a_token_that_nothing_looks_for() -> None:
    with pytest.raises(ConfigError, match=r"data\.eod = 5(.|\n)*nothing looks for it"):
        CorpusConfig(path="a", eod=5)
