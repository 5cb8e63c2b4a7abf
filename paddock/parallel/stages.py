"""Which layers make a pipeline stage, and which process holds which stages."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.parallel.config import ScheduleName

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


def balanced(layers: int, count: int, before: float, layer: float, behind: float) -> list[int]:
    """The stage of every layer so that the costliest stage costs least: `before` falls on the first, `behind` on the
    last. Every stage gets at least one layer."""
    sizes = [1] * count
    load = [layer] * count
    load[0] += before
    load[-1] += behind
    for _ in range(layers - count):
        lightest = min(range(count), key=lambda stage: load[stage])
        sizes[lightest] += 1
        load[lightest] += layer
    return [stage for stage, size in enumerate(sizes) for _ in range(size)]


def layers_of(stage: int, assignment: Sequence[int]) -> range:
    """The layers of a stage, as a range: an assignment never goes back."""
    members = [layer for layer, assigned in enumerate(assignment) if assigned == stage]
    return range(members[0], members[-1] + 1)
