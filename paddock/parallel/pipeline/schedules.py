"""Pipeline schedules: what torch calls them, which units make a stage, who holds which stages, and how long processes
wait for each other. No torch until a timeline is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf
from types import SimpleNamespace
from typing import Any

from paddock.parallel.config import ScheduleName

BEGIN, FINISH = "begin", "finish"
"""What comes before and after a model's units, among their names."""
ENGINE_NAMES: dict[ScheduleName, str] = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "looped-bfs": "LoopedBFS",
    "zero-bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
"""What torch calls them."""
LOOPED: tuple[ScheduleName, ...] = ("interleaved", "looped-bfs", "zero-bubble")
"""Process r holds stages r, r + pipeline, r + 2 × pipeline, …"""
FOLDED: tuple[ScheduleName, ...] = ("zbv", "dualpipev")
"""Process r holds stages r and 2 × pipeline − 1 − r: the first and the last stage are on the same process."""
SPLIT_BACKWARD: tuple[ScheduleName, ...] = ("zero-bubble", "zbv", "dualpipev")
"""They compute the gradients of a stage's input first, and those of its weights when there is time."""


def stages_of(rank: int, pipeline: int, count: int, schedule: ScheduleName) -> list[int]:
    """The stages that pipeline process `rank` holds, in order."""
    if schedule in FOLDED:
        return [rank, count - 1 - rank]
    return list(range(rank, count, pipeline))


def default_count(pipeline: int, schedule: ScheduleName) -> int:
    """How many stages a schedule has, unless a list of stages says otherwise."""
    return pipeline * (2 if schedule in LOOPED or schedule in FOLDED else 1)


def balanced(costs: Sequence[float], count: int) -> list[int]:
    """The stage of every unit so that the costliest of `count` stages costs as little as can be, and the others are as
    equal as can be. The first cost is that of what comes before the units, the last that of what comes after. Every
    stage gets at least one unit; of equal cuts, the one with more in the early stages."""
    units = [*costs[1:-1]]
    units[0] += costs[0]
    units[-1] += costs[-1]
    sums = [0.0, *accumulate(units)]
    bound = _lowest_bound(sums, count) * (1 + 1e-9)
    # squares[end]: the least sum of squared stage costs that packs the units before `end` into the stages so far.
    squares: list[float] = [0.0] + [inf] * len(units)
    begins: list[list[int]] = []
    for _ in range(count):
        best, begin_of = [inf] * len(sums), [0] * len(sums)
        for end in range(1, len(sums)):
            for begin in range(end - 1, -1, -1):
                load = sums[end] - sums[begin]
                if load > bound:
                    break
                if squares[begin] + load**2 < best[end] * (1 - 1e-12):
                    best[end], begin_of[end] = squares[begin] + load**2, begin
        squares = best
        begins.append(begin_of)
    stages, end = [0] * len(units), len(units)
    for stage in range(count - 1, -1, -1):
        begin = begins[stage][end]
        stages[begin:end] = [stage] * (end - begin)
        end = begin
    return stages


def _lowest_bound(sums: Sequence[float], count: int) -> float:
    """The least that the costliest of `count` stages can cost, from the sums of the costs before each unit."""
    worst = [0.0] + [inf] * (len(sums) - 1)
    for _ in range(count):
        worst = [
            min((max(worst[begin], sums[end] - sums[begin]) for begin in range(end)), default=inf)
            for end in range(len(sums))
        ]
    return worst[-1]


def units_of(stage: int, assignment: Sequence[int]) -> range:
    """The units of a stage, as a range: an assignment never goes back."""
    members = [unit for unit, assigned in enumerate(assignment) if assigned == stage]
    return range(members[0], members[-1] + 1)


DURATIONS = {"FORWARD": 1, "FULL_BACKWARD": 2, "BACKWARD_INPUT": 1, "BACKWARD_WEIGHT": 1}
"""Of what a process computes; all else that a schedule lists is communication."""
Step = tuple[str, int, int]
"""What is computed, the stage and the micro-batch."""


def bubble_fraction(schedule: ScheduleName, pipeline: int, stages: int, micro_batches: int) -> float:
    """The part of a step that a process waits, on average, if every stage takes the same time and sending none."""
    if pipeline == 1:
        return 0.0
    todo = [list(_steps(actions)) for actions in _orders(schedule, pipeline, stages, micro_batches)]
    work = sum(DURATIONS[kind] for steps in todo for kind, _, _ in steps)
    finished: dict[Step, int] = {}
    clocks, positions = [0] * pipeline, [0] * pipeline
    while any(position < len(steps) for position, steps in zip(positions, todo, strict=True)):
        before = sum(positions)
        for process, steps in enumerate(todo):
            while positions[process] < len(steps):
                step = steps[positions[process]]
                need = _need(step, stages)
                if need is not None and need not in finished:
                    break
                begins = max(clocks[process], finished[need] if need else 0)
                clocks[process] = begins + DURATIONS[step[0]]
                finished[_result(step)] = clocks[process]
                positions[process] += 1
        assert sum(positions) > before, "the schedule waits for itself"
    return 1 - work / (pipeline * max(clocks))


def _orders(schedule: ScheduleName, pipeline: int, stages: int, micro_batches: int) -> list[list[Any]]:
    """What torch's schedule lists for each process. It is made from stages that only know how many there are."""
    from torch.distributed.pipelining.schedules import get_schedule_class  # most of a second, so only for a pipeline

    nominal = SimpleNamespace(group_rank=0, group_size=pipeline, num_stages=stages, submod=None)
    several = schedule in LOOPED or schedule in FOLDED
    engine: Any = get_schedule_class(ENGINE_NAMES[schedule])
    order = engine([nominal] * (stages // pipeline) if several else nominal, micro_batches).pipeline_order
    return [order[process] for process in range(pipeline)]


def _steps(actions: list[Any]) -> Iterator[Step]:
    """What a process computes, in order."""
    forwards: Counter[int] = Counter()
    for action in actions:
        if action is None:
            continue
        for part in action.sub_actions or (action,):
            kind, stage, micro_batch = part.computation_type.name, part.stage_index, part.microbatch_index
            if kind == "FORWARD":  # counted here: torch 2.13 lists those of 1F1B's last stage one too high
                micro_batch = forwards[stage]
                forwards[stage] += 1
            if kind in DURATIONS:
                yield kind, stage, micro_batch


def _need(step: Step, stages: int) -> Step | None:
    """What must be there before a step; what a process computed itself it has anyway."""
    kind, stage, micro_batch = step
    if kind == "FORWARD":
        return ("FORWARD", stage - 1, micro_batch) if stage else None
    if kind == "BACKWARD_WEIGHT" or stage + 1 == stages:
        return None
    return "BACKWARD", stage + 1, micro_batch


def _result(step: Step) -> Step:
    """What others wait for: it is the same to them how the gradient of a stage's input was computed."""
    kind, stage, micro_batch = step
    return ("BACKWARD" if kind in ("FULL_BACKWARD", "BACKWARD_INPUT") else kind), stage, micro_batch
