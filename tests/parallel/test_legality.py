"""What a layout asks of a model and of a batch: every impossible one is named, with what would be legal."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from paddock.devices import all_adapters
from paddock.errors import ConfigError
from paddock.parallel.config import ParallelConfig, ScheduleName, divisors
from paddock.parallel.legality import (
    check_compile,
    check_device,
    check_micro_batches,
    check_pipeline,
    check_shard,
    check_tensor,
    legal_micro_batches,
    may_compile,
    takes_micro_batches,
)
from paddock.parallel.pipeline.schedules import bubble_fraction, default_count

LENGTHS = {"data.sequence-length": 128}
SMALL = {"heads": 12, "feed-forward columns": 3072}


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
@pytest.mark.parametrize("pipeline", [2, 3, 4, 8])
def test_micro_batches_are_those_that_torch_takes(schedule: ScheduleName, pipeline: int) -> None:
    for count in range(1, 21):
        try:
            bubble_fraction(schedule, pipeline, default_count(pipeline, schedule), count)
            taken = True
        except ValueError:
            taken = False
        assert takes_micro_batches(schedule, pipeline, count) == taken, count


@pytest.mark.parametrize(
    ("schedule", "pipeline", "counts"),
    [
        ("gpipe", 4, "1 or more"),
        ("1f1b", 4, "4 or more"),
        ("interleaved", 2, "1, 2, 3, 4, 6, 8, 10, …"),
        ("looped-bfs", 2, "1 or more"),
        ("zbv", 4, "1 or more"),
        ("dualpipev", 4, "8 or more"),
    ],
)
def test_legal_micro_batches_in_words(schedule: ScheduleName, pipeline: int, counts: str) -> None:
    assert legal_micro_batches(schedule, pipeline) == counts


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"tensor": 8}, r"parallel\.tensor = 8(.|\n)*12 heads do not divide by 8(.|\n)*legal: 1, 2, 3, 4, 6, 12$"),
        ({"sequence": True}, r"parallel\.sequence = true(.|\n)*no effect"),
        ({"tensor": 3, "sequence": True}, r"sequence of 128 does not divide by tensor 3(.|\n)*sequence-length 126"),
    ],
)
def test_impossible_tensor_layouts(layout: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_tensor(ParallelConfig(**layout), SMALL, 50257, LENGTHS)


def test_feed_forward_columns_divide_too() -> None:
    with pytest.raises(ConfigError, match=r"9 feed-forward columns do not divide by 2(.|\n)*legal: 1, 3$"):
        check_tensor(ParallelConfig(tensor=2), {"heads": 12, "feed-forward columns": 9}, 50257, LENGTHS)


def test_every_tensor_process_needs_a_token() -> None:
    with pytest.raises(ConfigError, match=r"vocabulary of 9 tokens(.|\n)*legal: 1, 2, 3$"):
        check_tensor(ParallelConfig(tensor=4), SMALL, 9, LENGTHS)
    check_tensor(ParallelConfig(tensor=4), SMALL, 10, LENGTHS)  # 3, 3, 3 and 1


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"pipeline": 8}, r"makes 8 stages, and the model has 6 layers(.|\n)*legal: 1, 2, 3, 4, 5, 6$"),
        (
            {"pipeline": 4, "schedule": "zbv"},
            r"8 stages with 2 on each process(.|\n)*legal: 1, 2, 3, or .* 1f1b or gpipe",
        ),
        ({"schedule": "gpipe"}, r"parallel\.schedule = gpipe(.|\n)*no effect"),
        ({"stages": (0, 0, 0, 0, 0, 0)}, r"parallel\.stages = 0,0,0,0,0,0(.|\n)*no effect"),
        ({"pipeline": 2, "stages": (0, 0, 1, 1)}, r"each of 4 layers, and the model has 6"),
        ({"pipeline": 2, "stages": (1, 1, 1, 2, 2, 2)}, r"the first layer is in stage 1"),
        ({"pipeline": 2, "stages": (0, 1, 1, 0, 1, 1)}, r"goes back from stage 1 to 0 at layer 3"),
        ({"pipeline": 2, "stages": (0, 0, 2, 2, 2, 2)}, r"skips stage 1 at layer 2"),
        ({"pipeline": 2, "stages": (0, 0, 1, 1, 2, 2)}, r"3 stages(.|\n)*1f1b over 2 processes takes exactly 2"),
        ({"pipeline": 2, "schedule": "zbv", "stages": (0, 0, 0, 1, 1, 1)}, r"2 stages(.|\n)*exactly 4"),
        ({"pipeline": 2, "schedule": "looped-bfs", "stages": (0, 0, 1, 2, 3, 4)}, r"5 stages(.|\n)*2, 4, 6, …"),
        ({"pipeline": 2, "schedule": "zbv", "recompute": "selective"}, r"in two passes(.|\n)*full or none"),
    ],
)
def test_impossible_pipelines(layout: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_pipeline(ParallelConfig(**layout), 6)


@pytest.mark.parametrize(
    "layout",
    [
        {"pipeline": 4},  # uneven: 6 layers in 4 stages
        {"pipeline": 2, "schedule": "interleaved"},
        {"pipeline": 2, "schedule": "interleaved", "stages": (0, 1, 2, 3, 4, 5)},
        {"pipeline": 2, "schedule": "zero-bubble", "stages": (0, 0, 0, 1, 1, 1)},
        {"pipeline": 2, "stages": (0, 1, 1, 1, 1, 1)},
        {"pipeline": 2, "schedule": "zbv", "recompute": "full"},
        {"pipeline": 2, "schedule": "dualpipev", "stages": (0, 0, 0, 1, 2, 3)},
    ],
)
def test_possible_pipelines(layout: dict[str, Any]) -> None:
    assert "6 layers in" in check_pipeline(ParallelConfig(**layout), 6)


def test_thirty_layers_in_eight_stages() -> None:
    """Stages need not be equal, so an interleaved schedule asks nothing of the number of layers."""
    assert "30 layers in 8 stages" in check_pipeline(ParallelConfig(pipeline=4, schedule="interleaved"), 30)


@pytest.mark.parametrize("mode", ["optimizer", "parameters"])
def test_sharding_needs_replicas(mode: Any) -> None:
    with pytest.raises(ConfigError, match=rf"parallel\.shard = {mode}(.|\n)*no effect"):
        check_shard(ParallelConfig(shard=mode), 1)
    check_shard(ParallelConfig(shard=mode), 2)
    check_shard(ParallelConfig(shard=mode, pipeline=2), 2)


def test_two_backward_passes_need_whole_parameters() -> None:
    with pytest.raises(ConfigError, match=r"parallel\.shard = parameters(.|\n)*two passes(.|\n)*shard optimizer"):
        check_shard(ParallelConfig(shard="parameters", pipeline=2, schedule="zero-bubble"), 2)
    check_shard(ParallelConfig(shard="optimizer", pipeline=2, schedule="zero-bubble"), 2)


def test_micro_batches_that_a_schedule_cannot_take() -> None:
    with pytest.raises(ConfigError, match=r"batch\.accumulation = 3(.|\n)*1f1b over 4 (.|\n)*4 or more(.|\n)*gpipe"):
        check_micro_batches(ParallelConfig(pipeline=4), 3, lambda: "set more")
    with pytest.raises(ConfigError, match=r"takes 1, 2, 3, 4, 6, 8, 10, … micro-batches(.|\n)*set more, or "):
        check_micro_batches(ParallelConfig(pipeline=2, schedule="zero-bubble"), 5, lambda: "set more")
    check_micro_batches(ParallelConfig(), 1, lambda: "set more")


def test_what_a_device_cannot_do() -> None:
    modest = next(adapter for adapter in all_adapters() if adapter.parallelism == "data")
    for layout in ({"tensor": 2}, {"pipeline": 2}, {"shard": "parameters"}):
        with pytest.raises(ConfigError, match=rf"parallel\.{next(iter(layout))}(.|\n)*on {modest.name} only"):
            check_device(ParallelConfig(**layout), modest)
    check_device(ParallelConfig(data=8), modest)


def test_compiled_blocks_and_split_backward_passes() -> None:
    with pytest.raises(ConfigError, match=r"train\.compile = on(.|\n)*zbv splits the backward pass"):
        check_compile(ParallelConfig(pipeline=2, schedule="zbv"), "on")
    check_compile(ParallelConfig(pipeline=2, schedule="zbv"), "auto")
    assert not may_compile(ParallelConfig(pipeline=2, schedule="zbv")) and may_compile(ParallelConfig(pipeline=2))
    check_compile(ParallelConfig(pipeline=2), "on")
    with pytest.raises(ConfigError, match=r"train\.compile = on(.|\n)*selective chooses among operations"):
        check_compile(ParallelConfig(recompute="selective"), "on")
    assert not may_compile(ParallelConfig(recompute="selective")) and may_compile(ParallelConfig(recompute="full"))


def test_divisors() -> None:
    for value in (1, 2, 36, 97, 360):
        assert divisors(value) == [number for number in range(1, value + 1) if value % number == 0]
    assert divisors(2**40)[-2:] == [2**39, 2**40]
