"""The sampler: every layout sees the same samples, in the same order, from one number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paddock.data.loading.sampler import Sampler, evaluation_batches

LAYOUTS = st.tuples(st.integers(1, 5), st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 7]))


def global_batch(micro: int, accumulation: int, data: int, position: int) -> list[int]:
    """The samples of a step: micro-batch by micro-batch in time, rank by rank within."""
    steps = [Sampler(micro, accumulation, data, rank).step(position) for rank in range(data)]
    assert all(len(step) == accumulation and all(len(part) == micro for part in step) for step in steps)
    return [index for parts in zip(*steps, strict=True) for part in parts for index in part]


@given(LAYOUTS, st.integers(0, 1 << 50))
def test_a_step_is_the_same_samples_in_order_in_any_layout(layout: tuple[int, int, int], position: int) -> None:
    micro, accumulation, data = layout
    total = micro * accumulation * data
    assert global_batch(*layout, position) == list(range(position, position + total))
    assert Sampler(micro, accumulation, data, 0).batch == total


@given(st.integers(1, 3), st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]), min_size=1, max_size=6), st.data())
def test_the_layout_may_change_between_steps(factor: int, sizes: list[int], data) -> None:
    """The same global batch, cut otherwise at every step: the stream of samples does not notice."""
    total, position, read = 24 * factor, 0, []
    for size in sizes:
        accumulation = data.draw(st.sampled_from([n for n in range(1, total // size + 1) if total // size % n == 0]))
        micro = total // (size * accumulation)
        read += global_batch(micro, accumulation, size, position)
        position += Sampler(micro, accumulation, size, 0).batch
    assert read == list(range(total * len(sizes))) and position == len(read)


@given(st.lists(LAYOUTS, min_size=1, max_size=6), st.integers(0, 1000))
def test_the_batch_may_change_too(layouts: list[tuple[int, int, int]], start: int) -> None:
    position, read = start, []
    for layout in layouts:
        read += global_batch(*layout, position)
        position += Sampler(*layout, 0).batch
    assert read == list(range(start, position))


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 5))
def test_evaluation_shares_are_exact(count: int, data: int, micro: int) -> None:
    parts = [part for rank in range(data) for part in evaluation_batches(count, data, rank, micro)]
    assert [index for part in parts for index in part] == list(range(count))
    assert all(0 < len(part) <= micro for part in parts)
