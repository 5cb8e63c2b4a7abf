"""Distances between tensors, and sketches of them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paddock.alignment.layers.closeness import FAR, SAME, Distance, distance, move, operator_tolerance, tolerance
from paddock.alignment.layers.record import SUMS, sketch


def test_distances() -> None:
    reference = torch.tensor([3.0, 0.0, 4.0])
    assert distance(reference.clone(), reference) == SAME
    assert distance(torch.tensor([3.0, 1.0, 4.0]), reference) == Distance(1 / 5, 1 / 4)
    assert distance(reference, torch.zeros(3)) == FAR, "nothing is near to zero, but zero"
    assert distance(torch.zeros(3), torch.zeros(3)) == SAME
    assert distance(torch.zeros(2), torch.zeros(3)) == FAR
    for strange in (math.nan, math.inf):
        assert distance(torch.tensor([3.0, strange, 4.0]), reference) == FAR
    masked = torch.tensor([3.0, 4.0, -math.inf])
    assert distance(torch.tensor([3.0, 5.0, -math.inf]), masked) == Distance(1 / 5, 1 / 4)
    assert (
        distance(torch.tensor([3.0, 4.0, math.inf]), masked) == distance(torch.tensor([3.0, 4.0, 0.0]), masked) == FAR
    )
    assert distance(torch.tensor([1, 2]), torch.tensor([1, 3])) == FAR, "whole numbers are the same or they are not"


def test_errors_that_cancel_are_errors() -> None:
    assert distance(torch.tensor([1.0 + 1e-3, 1.0 - 1e-3]), torch.ones(2)).whole == pytest.approx(1e-3, rel=1e-3)


def test_one_wrong_number_among_many_shows() -> None:
    reference = torch.ones(1_000_000)
    found = reference.clone()
    found[12345] = 1.5
    apart = distance(found, reference)
    assert apart.whole < 1e-3 and apart.worst == 0.5
    assert not apart.within(Distance(1e-3, 1e-3))


def test_moving_is_by_a_rounding() -> None:
    values = {"x": torch.randn(1000), "places": torch.arange(3)}
    moved = move(values, torch.bfloat16, seed=1)
    apart = distance(moved["x"], values["x"])
    eps = torch.finfo(torch.bfloat16).eps
    assert 0.1 * eps < apart.whole < eps and torch.equal(moved["places"], values["places"])
    assert torch.equal(move(values, torch.bfloat16, seed=1)["x"], moved["x"])
    assert apart.within(tolerance(apart, torch.bfloat16))


def test_what_is_infinitely_far_is_within_nothing() -> None:
    assert not FAR.within(FAR) and not Distance(0.0, math.inf).within(FAR)
    assert Distance(1e300, 0.0).within(FAR) and SAME.within(SAME)


@pytest.mark.parametrize("number_type", [torch.bfloat16, torch.float16])
def test_few_bits_have_no_room_to_waste(number_type: torch.dtype) -> None:
    """A tensor as a whole may be as far as the moved reference is, and an operator a rounding away."""
    eps = torch.finfo(number_type).eps
    assert tolerance(Distance(2 * eps, 2 * eps), number_type).whole == 2 * eps
    assert tolerance(SAME, number_type).whole == eps / 2
    assert operator_tolerance(SAME, number_type) == Distance(eps, 2 * eps)
    assert operator_tolerance(Distance(eps, eps), number_type) == Distance(4 * eps, 4 * eps)
    assert operator_tolerance(SAME, torch.float32) == tolerance(SAME, torch.float32)


@given(st.integers(1, 200_000), st.integers(0, 10))
def test_sketches_are_as_far_apart_as_the_tensors(size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    one, error = (torch.randn(size, generator=generator) for _ in range(2))
    apart = torch.linalg.vector_norm(sketch(one + 1e-3 * error) - sketch(one))
    wanted = torch.linalg.vector_norm(1e-3 * error.double())
    assert len(sketch(one)) == SUMS
    # The square of a sketch is right on average; with 64 sums it is off by half about once in a thousand times.
    assert 0.4 * wanted < apart < 1.8 * wanted
