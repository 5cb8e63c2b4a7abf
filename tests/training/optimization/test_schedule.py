"""Learning rates, against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paddock.training.config import ScheduleConfig
from paddock.training.optimization.schedule import learning_rate, warmup_steps


@pytest.mark.parametrize(
    ("config", "step", "rate"),
    [
        ({"name": "constant"}, 99, 1.0),
        ({"name": "constant", "warmup": 4}, 0, 0.25),
        ({"name": "constant", "warmup": 4}, 3, 1.0),
        ({"name": "linear"}, 0, 1.0),
        ({"name": "linear"}, 50, 0.5),
        ({"name": "linear", "min_lr": 0.2}, 50, 0.6),
        ({"name": "linear", "warmup": 20}, 60, 0.5),
        ({"name": "linear", "warmup": 0.2}, 60, 0.5),
        ({"name": "cosine"}, 50, 0.5),
        ({"name": "cosine"}, 25, 0.5 * (1 + math.cos(math.pi / 4))),
        ({"name": "cosine", "min_lr": 0.1}, 100, 0.1),
        ({"name": "cosine", "min_lr": 0.1}, 500, 0.1),
        ({"name": "cosine", "decay_steps": 200}, 100, 0.5),
        ({"name": "polynomial", "power": 2.0}, 50, 0.25),
        ({"name": "step", "step_size": 30}, 29, 1.0),
        ({"name": "step", "step_size": 30}, 30, 0.1),
        ({"name": "step", "step_size": 30, "factor": 0.5}, 90, 0.125),
        ({"name": "step", "step_size": 30, "min_lr": 0.05}, 90, 0.05),
        ({"name": "inverse_sqrt", "hold": 25}, 0, 1.0),
        ({"name": "inverse_sqrt", "hold": 25}, 24, 1.0),
        ({"name": "inverse_sqrt", "hold": 25}, 99, 0.5),
        ({"name": "inverse_sqrt", "hold": 25, "min_lr": 0.6}, 99, 0.6),
        ({"name": "inverse_sqrt", "warmup": 4}, 0, 0.25),
        ({"name": "inverse_sqrt", "warmup": 0.04}, 15, 0.5),
        ({"name": "inverse_sqrt", "warmup": 4, "hold": 16}, 8, 1.0),
    ],
)
def test_rates(config: dict[str, Any], step: int, rate: float) -> None:
    assert learning_rate(ScheduleConfig(**config), 1.0, step, total_steps=100) == pytest.approx(rate)


def test_warmup_is_steps_or_a_fraction() -> None:
    assert warmup_steps(ScheduleConfig(warmup=0.01), 320000) == 3200
    assert warmup_steps(ScheduleConfig(warmup=7), 320000) == 7
