"""Schedules and periods that are counted in epochs."""

from __future__ import annotations

import pytest

from paddock.config.load import load_recipe
from paddock.config.rules import examine
from paddock.errors import ConfigError
from paddock.training.config import ScheduleConfig
from paddock.training.optimization.schedule import in_steps, learning_rate, period


def test_the_imagenet_example_divides_by_ten_every_thirty_epochs() -> None:
    steps_per_epoch = 1_281_167 / 256
    schedule = in_steps(ScheduleConfig(name="step", unit="epochs", step_size=30), steps_per_epoch)
    for epoch, rate in ((0, 0.1), (29, 0.1), (30, 0.01), (59, 0.01), (60, 0.001), (89, 0.001)):
        middle = int((epoch + 0.5) * steps_per_epoch)
        assert learning_rate(schedule, 0.1, middle, 450_411) == pytest.approx(rate)


def test_warm_up_in_epochs_or_as_a_part() -> None:
    whole = in_steps(ScheduleConfig(unit="epochs", warmup=5, decay_steps=100), 10)
    assert (whole.warmup, whole.decay_steps, whole.unit) == (50, 1000, "steps")
    part = in_steps(ScheduleConfig(unit="epochs", warmup=0.05, decay_steps=100), 10)
    assert [learning_rate(part, 1.0, step, 5000) for step in range(60)] == [
        learning_rate(whole, 1.0, step, 5000) for step in range(60)
    ]
    steps = ScheduleConfig(warmup=5)
    assert in_steps(steps, 10) is steps


def test_once_an_epoch() -> None:
    assert [period(every, 12.5) for every in ("epoch", 7, None)] == [13, 7, None]
    assert period("epoch", 0.25) == 1


def test_a_warm_up_that_leaves_nothing_is_an_error() -> None:
    recipe = load_recipe("resnet/tiny-synthetic")
    changed = recipe.schedule.model_copy(update={"warmup": 9, "decay_steps": 5})
    results = {one.name: one for one in examine(recipe.model_copy(update={"schedule": changed}), 1)}
    assert not results["schedule"].holds and "9 warm-up epochs" in results["schedule"].detail
    assert "0.2 warm-up epochs" in {one.name: one for one in examine(recipe, 1)}["schedule"].detail


def test_words_other_than_epoch_are_errors() -> None:
    from paddock.training.config import EvaluateConfig

    with pytest.raises(ConfigError, match="every"):
        EvaluateConfig(every="week")  # type: ignore[arg-type]
