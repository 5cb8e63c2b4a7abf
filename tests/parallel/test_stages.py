"""Layers into stages, stages onto processes."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.parallel.schedules import balanced, default_count, stages_of, units_of


def costliest(assignment: list[int], before: float, layer: float, behind: float) -> float:
    loads = [layer * assignment.count(stage) for stage in range(assignment[-1] + 1)]
    loads[0] += before
    loads[-1] += behind
    return max(loads)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 5), st.floats(0, 5))
def test_no_other_cut_is_better(layers: int, count: int, before: float, behind: float) -> None:
    if count > layers:
        layers, count = count, layers
    assignment = balanced(layers, count, before, 1.0, behind)
    assert len(assignment) == layers and sorted(set(assignment)) == list(range(count))
    assert assignment == sorted(assignment)
    best = min(
        costliest([sum(layer >= cut for cut in cuts) for layer in range(layers)], before, 1.0, behind)
        for cuts in combinations(range(1, layers), count - 1)
    )
    assert costliest(assignment, before, 1.0, behind) <= best + 1e-9


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
