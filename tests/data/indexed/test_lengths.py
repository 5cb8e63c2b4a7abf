"""Statistics of lengths: the same as of all of them at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.indexed.inspection import SHORT, LengthRange, Lengths


@settings(max_examples=25)
@given(
    st.lists(
        st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**31)), max_size=20).map(np.array),
        min_size=1,
        max_size=3,
    )
)
def test_like_all_at_once(parts: list[np.ndarray]) -> None:
    lengths = Lengths()
    for part in parts:
        lengths.add(part.astype(np.int64))
    everything = np.sort(np.concatenate(parts).astype(np.int64))
    assert (lengths.count, lengths.total) == (len(everything), everything.sum())
    for part in lengths.histogram():
        assert part.count == ((everything >= part.low) & (everything <= part.high)).sum()
    assert sum(part.count for part in lengths.histogram()) == len(everything)
    if len(everything):
        for fraction in (0.0, 0.5, 0.9, 0.99, 1.0):
            expected = np.quantile(everything, fraction, method="inverted_cdf")
            assert lengths.quantile(fraction) == expected
        summary = lengths.summary()
        assert (summary["shortest"], summary["longest"]) == (everything[0], everything[-1])
        assert summary["mean"] == lengths.total / lengths.count


def test_ranges_are_powers_of_two() -> None:
    lengths = Lengths()
    lengths.add(np.array([2, 3, 9, SHORT, SHORT - 1, 2]))
    ranges = lengths.histogram()
    assert ranges[:3] == [LengthRange(2, 3, 3), LengthRange(4, 7, 0), LengthRange(8, 15, 1)]
    assert ranges[-2:] == [LengthRange(SHORT // 2, SHORT - 1, 1), LengthRange(SHORT, 2 * SHORT - 1, 1)]
    empty = Lengths()
    empty.add(np.zeros(3, np.int64))
    assert empty.histogram() == [LengthRange(0, 0, 3), LengthRange(1, 1, 0)]
    assert Lengths().histogram() == [] and Lengths().summary() == {}
