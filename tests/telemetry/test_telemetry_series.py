"""Series of any length in bounded memory: what is kept of them, and what smoothing makes of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.telemetry.series import Point, Series

numbers = st.floats(-1e9, 1e9) | st.sampled_from([math.nan, math.inf, -math.inf])


def series(values: list[float], most: int = 8) -> Series:
    made = Series(most)
    for step, value in enumerate(values, start=1):
        made.add(Point(step, value))
    return made


@given(st.lists(numbers, min_size=1, max_size=300), st.integers(2, 20))
def test_ends_and_extremes_are_kept_in_order_and_no_more_than_fit(values: list[float], most: int) -> None:
    made = series(values, most)
    kept = list(made.points())
    steps = [point.step for point in kept]
    assert steps == sorted(set(steps)) and len(kept) <= 5 * most
    assert all(point.value is values[point.step - 1] for point in kept)  # nothing is made up
    assert steps[0] == 1 and steps[-1] == len(values) == made.count
    finite = [value for value in values if math.isfinite(value)]
    if finite:
        shown = [point.value for point in kept if math.isfinite(point.value)]
        assert min(shown) == min(finite) and max(shown) == max(finite)
    assert any(not math.isfinite(point.value) for point in kept) == (len(finite) < len(values))
    assert made.is_thinned == (len(kept) < len(values))


def test_a_short_series_is_kept_whole() -> None:
    made = series([3.0, 1.0, 2.0])
    assert [(point.step, point.value) for point in made.points()] == [(1, 3.0), (2, 1.0), (3, 2.0)]
    assert not made.is_thinned


def test_a_spike_among_hundreds_of_thousands_is_seen() -> None:
    made = Series()
    for step in range(300_000):
        made.add(Point(step, 9.0 if step == 123_456 else 1.0))
    kept = list(made.points())
    assert len(kept) <= 5000 and Point(123_456, 9.0) in kept


def test_smoothing_begins_at_the_first_value_and_follows() -> None:
    smooth = [point.value for point in series([5.0] * 5 + [1.0] * 200, most=1000).smoothed(10)]
    assert smooth[:5] == pytest.approx([5.0] * 5) and smooth[-1] == pytest.approx(1.0, abs=1e-6)
    falls = zip(smooth, smooth[1:], strict=False)
    assert all(later <= earlier + 1e-9 for earlier, later in falls) and 1.5 < smooth[15] < 4.5


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=200), st.floats(0.1, 50))
def test_a_thinned_series_is_smoothed_within_its_values(values: list[float], window: float) -> None:
    for point in series(values, most=8).smoothed(window):
        assert min(values) - 1e-6 <= point.value <= max(values) + 1e-6


def test_what_is_no_number_does_not_spoil_the_average() -> None:
    assert [point.value for point in series([1.0, math.nan, 1.0], most=10).smoothed(5)] == [1.0, 1.0]
