"""The waiting time of pipelines, against the formulas of the papers."""

from __future__ import annotations

from typing import get_args

import pytest

from paddock.parallel.config import ScheduleName
from paddock.parallel.pipeline.schedules import bubble_fraction, default_count


@pytest.mark.parametrize(("pipeline", "micro_batches"), [(2, 2), (2, 8), (4, 8), (8, 24)])
def test_against_the_papers(pipeline: int, micro_batches: int) -> None:
    waits = pipeline - 1
    for schedule in ("gpipe", "1f1b"):
        fraction = bubble_fraction(schedule, pipeline, pipeline, micro_batches)  # type: ignore[arg-type]
        assert fraction == pytest.approx(waits / (micro_batches + waits))
    for stages_each in (1, 2, 3):
        fraction = bubble_fraction("interleaved", pipeline, stages_each * pipeline, micro_batches)
        assert fraction == pytest.approx(waits / (stages_each * micro_batches + waits))


def test_splitting_the_backward_pass_waits_less() -> None:
    usual = bubble_fraction("interleaved", 4, 8, 8)
    for schedule in ("zero-bubble", "zbv", "dualpipev"):
        assert 0 < bubble_fraction(schedule, 4, 8, 8) < usual / 2  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
def test_more_micro_batches_wait_less(schedule: ScheduleName) -> None:
    fractions = [bubble_fraction(schedule, 4, default_count(4, schedule), count) for count in (8, 16, 32)]
    assert fractions == sorted(fractions, reverse=True) and fractions[0] > fractions[-1]


def test_without_a_pipeline_nobody_waits() -> None:
    assert bubble_fraction("1f1b", 1, 1, 4) == 0.0
