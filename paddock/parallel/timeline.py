"""How long the processes of a pipeline wait for each other, found from a schedule alone, without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from paddock.parallel.config import ScheduleName
from paddock.parallel.stages import ENGINE_NAMES, FOLDED, LOOPED

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
