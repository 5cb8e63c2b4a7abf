"""What a device differs from itself by: measured over a few repeats, and allowed within bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paddock.alignment.layers.closeness import SAME, Distance, distance, unremarkable
from paddock.alignment.layers.noise import MOST_NOISE, NOISE_ROOM, REPEATS, allow_noise, measure_noise, typical

RIGHT = torch.linspace(-1, 1, 1000)
ALLOWED = unremarkable(torch.float32)
EPS = torch.finfo(torch.float32).eps


def device(size: float) -> Callable[[], dict[str, Tensor]]:
    """One whose numbers are off by that much, each time otherwise."""
    generator = torch.Generator().manual_seed(3)
    return lambda: {"x": RIGHT * (1 + size * torch.randn(1000, generator=generator))}


def allowed_for(size: float) -> tuple[Distance, Distance]:
    compute = device(size)
    first = compute()
    noise = measure_noise(compute, first, {"x": RIGHT})["x"]
    return distance(first["x"], RIGHT), allow_noise(ALLOWED, noise, SAME, torch.float32)


def test_noise_has_room() -> None:
    for size in (1e-6, 1e-5, 1e-3):
        found, allowed = allowed_for(size)
        assert found.within(allowed) and not found.within(ALLOWED)
        assert not Distance(50 * found.whole, found.worst).within(allowed), "an error beyond the noise"


def test_other_numbers_every_time_are_no_noise() -> None:
    found, allowed = allowed_for(0.5)
    assert not found.within(allowed) and allowed.whole == MOST_NOISE


def test_what_makes_more_of_a_rounding_makes_more_of_noise() -> None:
    noise, moved = Distance(0.5, 0.5), Distance(1000 * EPS, 1000 * EPS)
    assert allow_noise(ALLOWED, noise, moved, torch.float32).whole == NOISE_ROOM * 0.5


def test_a_steady_device_computes_twice() -> None:
    calls: list[int] = []

    def compute() -> dict[str, Tensor]:
        calls.append(1)
        return {"x": RIGHT.clone()}

    assert measure_noise(compute, {"x": RIGHT}, {"x": RIGHT}) == {"x": SAME} and len(calls) == 1
    unlike = {"x": RIGHT + 1}
    assert measure_noise(compute, unlike, {"x": RIGHT})["x"].whole > 0 and len(calls) == 1 + REPEATS
    assert allow_noise(ALLOWED, SAME, SAME, torch.float32) == ALLOWED


def test_what_is_known_is_not_measured_again() -> None:
    compute, calls = device(1e-5), []

    def again() -> dict[str, Tensor]:
        calls.append(1)
        return compute()

    first = compute()
    once = measure_noise(again, first, {"x": RIGHT}, repeats=1)
    assert len(calls) == 1 and once["x"].whole > 0
    more = measure_noise(again, first, {"x": RIGHT}, known=once)
    assert len(calls) == REPEATS and more["x"].whole >= once["x"].whole and more["x"].worst >= once["x"].worst
    assert measure_noise(again, first, {"x": RIGHT}, known={"x": SAME}) == {"x": SAME} and len(calls) == REPEATS


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_no_numbers_are_no_noise(strange: float) -> None:
    wrong = torch.full((1000,), strange)
    assert measure_noise(lambda: {"x": wrong}, {"x": wrong.clone()}, {"x": RIGHT}) == {"x": SAME}
    now_and_then = measure_noise(lambda: {"x": wrong}, {"x": RIGHT}, {"x": RIGHT})["x"]
    assert not distance(wrong, RIGHT).within(allow_noise(ALLOWED, now_and_then, SAME, torch.float32))


def test_steady_by_chance() -> None:
    noise = {"x": Distance(1e-4, 1e-3), "weight": Distance(2e-4, 1e-3), "loss": SAME}
    assert typical(noise) == Distance(1e-4, 1e-3)
