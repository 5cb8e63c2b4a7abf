"""What a run says, off a terminal, while a step takes long."""

from __future__ import annotations

import pytest

from paddock.activity import FORWARD, Activities
from paddock.phases import phase
from paddock.telemetry.screen.long_steps import LongSteps


class Watched:
    """Long steps with a clock of their own, which somebody looks at every ten seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.activities = Activities(lambda: self.now)
        self.steps = LongSteps(self.said.append, clock=lambda: self.now, activities=self.activities)

    def pass_seconds(self, seconds: int) -> list[str]:
        """What is said meanwhile."""
        before = len(self.said)
        for _ in range(seconds // 10):
            self.now += 10.0
            self.steps.look()
        return self.said[before:]


@pytest.fixture
def watched() -> Watched:
    found = Watched()
    found.activities.begin("forward and backward of step 1", FORWARD)
    return found


def test_the_first_step_is_told_of_ever_more_rarely(watched: Watched) -> None:
    said = watched.pass_seconds(320)
    expected = ["10s", "30s", "1m10s", "2m30s", "5m10s"]
    assert said == [f"forward and backward of step 1: {since} so far" for since in expected]


def test_a_step_as_long_as_the_last_one_is_no_news(watched: Watched) -> None:
    watched.pass_seconds(60)
    watched.steps.step_ended()
    assert watched.pass_seconds(110) == []
    assert len(watched.pass_seconds(10)) == 1
    watched.now += 1.0
    watched.activities.begin("loss and update of step 2", FORWARD)
    watched.steps.step_ended()
    watched.now += 1.0
    watched.steps.step_ended()
    assert watched.pass_seconds(10) == ["loss and update of step 2: 11s so far"], "short again"


def test_who_has_just_heard_something_else_is_told_later(watched: Watched) -> None:
    watched.now += 5.0
    watched.steps.heard()
    assert watched.pass_seconds(10) == ["forward and backward of step 1: 15s so far"]


def test_a_phase_tells_of_itself(watched: Watched) -> None:
    with phase("evaluating"):
        assert watched.pass_seconds(60) == []
    assert len(watched.pass_seconds(10)) == 1


def test_a_thread_looks_until_it_is_closed() -> None:
    said: list[str] = []
    steps = LongSteps(said.append, every=0.0)
    steps.start()
    while not said:
        pass
    steps.close()
    known = len(said)
    steps.close()
    assert len(said) == known
