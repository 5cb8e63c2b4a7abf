"""Layers into stages, stages onto processes."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.parallel.pipeline.schedules import balanced, default_count, stages_of, units_of


def loads(assignment: list[int], costs: list[float]) -> list[float]:
    before, *units, behind = costs
    found = [0.0] * (assignment[-1] + 1)
    for cost, stage in zip(units, assignment, strict=True):
        found[stage] += cost
    found[0] += before
    found[-1] += behind
    return found


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 5), min_size=3, max_size=11), st.integers(1, 9))
def test_no_other_cut_of_unequal_units_is_better(costs: list[float], count: int) -> None:
    units = len(costs) - 2
    count = min(count, units)
    assignment = balanced(costs, count)
    assert len(assignment) == units and sorted(set(assignment)) == list(range(count))
    assert assignment == sorted(assignment)
    others = [
        loads([sum(unit >= cut for cut in cuts) for unit in range(units)], costs)
        for cuts in combinations(range(1, units), count - 1)
    ]
    best = min(max(other) for other in others)
    mine = loads(assignment, costs)
    assert max(mine) <= best * (1 + 1e-6)
    squares = min(sum(load**2 for load in other) for other in others if max(other) <= best * (1 + 1e-9))
    assert sum(load**2 for load in mine) <= squares * (1 + 1e-6)


def test_what_is_over_falls_to_the_early_stages() -> None:
    assert balanced([0.0, *[1.0] * 7, 0.0], 3) == [0, 0, 0, 1, 1, 2, 2]


def test_many_units_are_balanced_at_once() -> None:
    costs = [0.0, *(1.0 + index % 3 for index in range(200)), 5.0]
    assert balanced(costs, 64)[-1] == 63


@given(st.integers(1, 8), st.sampled_from(["gpipe", "1f1b", "interleaved", "looped-bfs", "zero-bubble", "zbv"]))
def test_every_stage_is_on_one_process(pipeline: int, schedule: str) -> None:
    count = default_count(pipeline, schedule)  # type: ignore[arg-type]
    held = [stage for rank in range(pipeline) for stage in stages_of(rank, pipeline, count, schedule)]  # type: ignore[arg-type]
    assert sorted(held) == list(range(count))


def test_a_folded_pipeline_begins_and_ends_on_the_first_process() -> None:
    assert [stages_of(rank, 3, 6, "zbv") for rank in range(3)] == [[0, 5], [1, 4], [2, 3]]
    assert [stages_of(rank, 3, 6, "interleaved") for rank in range(3)] == [[0, 3], [1, 4], [2, 5]]


def test_layers_of_a_stage() -> None:
    assert [units_of(stage, [0, 0, 0, 1, 2, 2]) for stage in range(3)] == [range(3), range(3, 4), range(4, 6)]


def test_torchs_pipelines_are_imported_for_pipelines_only() -> None:
    code = "import sys, paddock.training.loop, paddock.jobs.evaluate; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
