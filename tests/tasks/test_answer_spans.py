"""The likeliest spans, against trying every one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paddock.tasks.answer_spans import best_spans, no_answer_scores, trimmed


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
