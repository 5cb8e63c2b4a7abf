"""Generation in any layout gives the tokens of one process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from paddock.testing.pool import ProcessPool
from paddock.testing.writing import (
    FORMATS,
    MODELS,
    WAYS,
    divergence,
    prompts_of,
    same_but_for_roundings,
    tell_alone,
    tell_together,
    write_alone,
    write_together,
)

PoolOf = Callable[[int], ProcessPool]
PROMPTS = prompts_of(9)
JOBS = list(itertools.product(MODELS, WAYS))


def layouts_of(processes: int) -> list[dict[str, Any]]:
    """Every legal one."""
    sizes = [size for size in (1, 2, 4) if size <= processes]
    return [
        {"tensor": tensor, "pipeline": pipeline}
        for tensor, pipeline in itertools.product(sizes, sizes)
        if processes % (tensor * pipeline) == 0
    ]


@pytest.fixture(scope="module")
def alone() -> dict[tuple[str, str], list[list[int]]]:
    found = {job: write_alone(*job, PROMPTS) for job in JOBS}
    for (model, way), results in found.items():
        assert len({tuple(result) for result in results}) > len(PROMPTS) // 2, f"{model} {way} is too dull"
    return found


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_every_layout_writes_the_same(pool_of: PoolOf, alone: dict[Any, list[list[int]]], processes: int) -> None:
    layouts = layouts_of(processes)
    assert len(layouts) == {2: 3, 4: 6}[processes]
    by_rank = pool_of(processes).run(write_together, JOBS, layouts, PROMPTS)
    for number, (layout, job) in enumerate(itertools.product(layouts, JOBS)):
        told: dict[int, list[list[int]]] = {}
        for found in by_rank:
            assert not told.keys() & found[number].keys(), "a prompt is written by one replica"
            told |= found[number]
        together = [sequence for prompt in range(len(PROMPTS)) for sequence in told[prompt]]
        assert together == alone[job], f"{layout} {job}"


def test_every_format_in_both_layouts(pool_of: PoolOf) -> None:
    """A layout rounds otherwise. With tensor parallelism in eight bits a part of a row has a scale of its own, so that
    this is another model, as near to what it was in float32."""
    layouts: list[dict[str, Any]] = [{"tensor": 2}, {"pipeline": 2}]
    by_rank = pool_of(2).run(tell_together, "gpt2", FORMATS, layouts, PROMPTS)
    alone = {format: tell_alone("gpt2", format, PROMPTS) for format in FORMATS}
    for number, (layout, format) in enumerate(itertools.product(layouts, FORMATS)):
        (together,) = [found[number] for found in by_rank if found[number]]
        if "tensor" in layout and format.startswith("int8"):
            assert 0 < divergence(together, alone["float32"]) < 0.3, f"{layout} {format}"
        else:
            assert same_but_for_roundings(together, alone[format], format), f"{layout} {format}"
    strangers = [*alone["float32"][1:], alone["float32"][0]]
    assert divergence(strangers, alone["float32"]) > 1, "prompts are too alike to tell anything"
