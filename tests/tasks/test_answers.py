"""Spans of a model's scores, and their exact match and F1."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paddock.tasks.answers import best_spans, no_answer_scores, normalize, score_answers, trimmed


def every_span(outputs: torch.Tensor, begin: int, end: int, longest: int) -> list[tuple[float, int, int]]:
    """All spans of one row's context, the best first."""
    pairs = [(first, last) for first in range(begin, end) for last in range(first, min(end, first + longest))]
    found = [(float(outputs[first, 0] + outputs[last, 1]), first, last) for first, last in pairs]
    return sorted(found, reverse=True)


@given(seed=st.integers(0, 10_000), longest=st.integers(1, 12), count=st.integers(1, 30))
def test_every_span_is_compared(seed: int, longest: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows, time = 3, 16
    outputs = torch.randn(rows, time, 2, generator=generator)
    begins = torch.randint(2, 8, (rows,), generator=generator)
    lengths = begins + torch.randint(1, 9, (rows,), generator=generator)  # the context's tokens and [SEP]
    token_types = (torch.arange(time) >= begins[:, None]) & (torch.arange(time) < lengths[:, None])
    spans = best_spans(outputs, token_types.long(), lengths, longest, count)
    for row in range(rows):
        expected = every_span(outputs[row], int(begins[row]), int(lengths[row]) - 1, longest)[:count]
        columns = zip(*(column[row].tolist() for column in spans), strict=True)
        found = [(score, first, last) for score, first, last in columns if not math.isinf(score)]
        assert found == [(pytest.approx(score), first, last) for score, first, last in expected]


def test_no_answer_is_the_first_token() -> None:
    outputs = torch.tensor([[[1.0, 2.0], [9.0, 9.0]], [[-1.0, 0.5], [0.0, 0.0]]])
    assert no_answer_scores(outputs).tolist() == [3.0, -0.5]


def test_answers_are_trimmed() -> None:
    text = "in  Café\u0301s. "
    assert text[slice(*trimmed(text, 2, 7))] == "Caf"
    assert text[slice(*trimmed(text, 4, 8))] == "Café\u0301"  # the accent behind the last letter belongs to it
    assert trimmed("   ", 0, 3) == (3, 3)


@pytest.mark.parametrize(
    "answer, expected",
    [
        ("The  Panthers", "panthers"),
        ("a an the", ""),
        ("theatre", "theatre"),  # an article is a word, not a part of one
        ("U.S.A.", "usa"),
        ("a.b", "ab"),  # punctuation goes first, so no article "a" is left
        ("the-end", "theend"),
        ("24–10", "24–10"),  # only ASCII punctuation goes
        ("“quoted”", "“quoted”"),
        ("Éire", "éire"),
        ("\tl’été\n", "l’été"),
        ("$5,000", "5000"),
    ],
)
def test_normalizing(answer: str, expected: str) -> None:
    assert normalize(answer) == expected


def score(said: str, right: list[str], unanswerable: bool = False) -> tuple[float, float]:
    found = score_answers([(said, right)], unanswerable)
    return found["exact_match"], found["f1"]


def test_one_answer() -> None:
    assert score("the Denver Broncos!", ["Denver Broncos"]) == (100, 100)
    # said 3 words, right 2, shared 2: precision 2/3, recall 1
    assert score("Denver Broncos team", ["Denver Broncos"]) == (0, pytest.approx(80))
    # words count as often as they occur in both: shared "ha" twice of three and of two
    assert score("ha ha ha", ["ha ha"]) == (0, pytest.approx(80))
    assert score("Broncos Denver", ["Denver Broncos"]) == (0, 100)
    assert score("Carolina", ["Denver Broncos"]) == (0, 0)
    assert score("Zürich", ["Zurich"]) == (0, 0)


def test_the_best_of_several_right_answers_counts() -> None:
    right = ["Saint Bernadette Soubirous", "Bernadette Soubirous", "Saint Bernadette"]
    assert score("bernadette soubirous", right) == (100, 100)
    # against "Saint Bernadette": precision 1/1, recall 1/2
    assert score("Bernadette", right) == (0, pytest.approx(200 / 3))


def test_answers_that_are_only_articles() -> None:
    assert score("the", ["a"]) == (100, 0)  # as the script of v1.1 has it
    assert score("the", ["a"], unanswerable=True) == (100, 100)  # and that of v2.0


def test_saying_nothing() -> None:
    assert score("", ["Denver"]) == (0, 0)
    assert score("", [], unanswerable=True) == (100, 100)
    assert score("Denver", [], unanswerable=True) == (0, 0)
    assert score("", ["Denver"], unanswerable=True) == (0, 0)


def test_percentages_over_all_questions() -> None:
    pairs = [("Denver", ["Denver"]), ("the blue house", ["blue"]), ("x", ["y"]), ("", []), ("z", [])]
    found = score_answers(pairs, unanswerable=True)
    half = 100 * 2 / 3  # precision 1/2, recall 1
    assert found == pytest.approx(
        {
            "exact_match": 40.0,
            "f1": (100 + half + 0 + 100 + 0) / 5,
            "has_answer_exact_match": 100 / 3,
            "has_answer_f1": (100 + half) / 3,
            "no_answer_exact_match": 50.0,
            "no_answer_f1": 50.0,
        }
    )
