"""What a layout asks of a model and of a batch, and what each pipeline schedule asks: checked before anything starts.

Every check returns what holds, with the numbers, or raises an error that lists what would be legal. A setting that
would have no effect is an error too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import get_args

from paddock.devices import DeviceAdapter
from paddock.errors import ConfigError, bad_value
from paddock.parallel.config import ParallelConfig, ScheduleName, divisors
from paddock.parallel.pipeline.schedules import FOLDED, LOOPED, SPLIT_BACKWARD, default_count

DEFAULT = ParallelConfig()


def check_tensor(config: ParallelConfig, parted: Mapping[str, int], vocabulary: int, lengths: Mapping[str, int]) -> str:
    """`parted` are the sizes that the tensor processes share out evenly, by name; `lengths` those of the sequences, by
    the field that sets them."""
    tensor = config.tensor
    if tensor == 1:
        if config.sequence:
            raise _no_effect(
                "parallel.sequence", "true", "parallel.tensor = 1 leaves nobody to share the sequence with"
            )
        return "no layer is shared"
    if not parted:
        raise bad_value("parallel.tensor", tensor, "this model is not cut over tensor processes", _legal([1]))
    common = math.gcd(*parted.values())
    legal = divisors(common)
    for name, size in parted.items():
        if size % tensor:
            raise bad_value("parallel.tensor", tensor, f"{size} {name} do not divide by {tensor}", _legal(legal))
    if vocabulary and -(-vocabulary // tensor) * (tensor - 1) >= vocabulary:
        raise bad_value(
            "parallel.tensor",
            tensor,
            f"a vocabulary of {vocabulary} tokens leaves some of {tensor} processes without any",
            _legal([count for count in legal if -(-vocabulary // count) * (count - 1) < vocabulary]),
        )
    shares = ", ".join(f"{size // tensor} of {size} {name}" for name, size in parted.items())
    for field, length in lengths.items() if config.sequence else ():
        if length % tensor:
            raise bad_value(
                "parallel.sequence",
                "true",
                f"a sequence of {length} does not divide by tensor {tensor}",
                f"set --{field} {length // tensor * tensor or tensor}, or --parallel.sequence false",
            )
        shares += f", {length // tensor} of {length} positions"
    return f"each process has {shares}"


def check_pipeline(config: ParallelConfig, layers: int) -> str:
    """Layers against stages, and stages against the schedule."""
    pipeline, schedule = config.pipeline, config.schedule
    if pipeline == 1:
        for name in ("schedule", "stages"):
            value = getattr(config, name)
            if value != getattr(DEFAULT, name):
                raise _no_effect(f"parallel.{name}", value, "parallel.pipeline = 1 has no stages to order")
        return f"{layers} layers in one stage"
    if config.stages != "auto":
        _check_list(config.stages, layers)
    count = default_count(pipeline, schedule) if config.stages == "auto" else config.stages[-1] + 1
    if count > layers:
        each = f" with {count // pipeline} on each process" if count > pipeline else ""
        fewer = [number for number in range(1, min(pipeline, layers + 1)) if default_count(number, schedule) <= layers]
        others = [name for name in ("1f1b", "gpipe") if count > pipeline and pipeline <= layers]
        raise bad_value(
            "parallel.pipeline",
            pipeline,
            f"schedule {schedule} makes {count} stages{each}, and the model has {layers} layers",
            _legal(fewer or [1]) + (f", or --parallel.schedule {' or '.join(others)}" if others else ""),
        )
    _check_count(config, count)
    if config.recompute == "selective" and schedule in SPLIT_BACKWARD:
        raise bad_value(
            "parallel.recompute",
            "selective",
            f"schedule {schedule} goes backward in two passes, and selective recomputing allows one",
            "set --parallel.recompute full or none, or --parallel.schedule 1f1b or interleaved",
        )
    sizes = "" if config.stages == "auto" else ": " + ", ".join(str(config.stages.count(at)) for at in range(count))
    return f"{layers} layers in {count} stages over {pipeline} processes, {schedule}{sizes}"


def check_shard(config: ParallelConfig, data: int) -> str:
    """Sharding needs somebody to share with, and a backward pass that is one."""
    if data == 1 and config.shard != "none":
        raise _no_effect("parallel.shard", config.shard, "data = 1 is one replica, which has nobody to share with")
    if config.shard == "parameters" and config.pipeline > 1 and config.schedule in SPLIT_BACKWARD:
        raise bad_value(
            "parallel.shard",
            "parameters",
            f"schedule {config.schedule} goes backward in two passes, which need the parameters whole",
            "set --parallel.shard optimizer, or --parallel.schedule 1f1b or interleaved",
        )
    return f"{config.shard} over {data} replica{'s' if data > 1 else ''}"


def check_micro_batches(config: ParallelConfig, micro_batches: int, advice: Callable[[], str]) -> None:
    """The number of micro-batches against the schedule; `advice` says how to change it."""
    pipeline, schedule = config.pipeline, config.schedule
    if pipeline == 1 or takes_micro_batches(schedule, pipeline, micro_batches):
        return
    others = [name for name in get_args(ScheduleName) if takes_micro_batches(name, pipeline, micro_batches)]
    raise bad_value(
        "batch.accumulation",
        micro_batches,
        f"schedule {schedule} over {pipeline} processes takes {legal_micro_batches(schedule, pipeline)} micro-batches",
        f"{advice()}, or --parallel.schedule {' or '.join(others[:3])}",
    )


def takes_micro_batches(schedule: ScheduleName, pipeline: int, count: int) -> bool:
    """Whether torch's schedule can run that many micro-batches in a step."""
    if schedule == "1f1b":
        return count >= pipeline
    if schedule == "dualpipev":
        return count >= 2 * pipeline
    if schedule in ("interleaved", "zero-bubble"):  # whole rounds, of at least `pipeline` micro-batches each
        return count % max(1, count // pipeline) == 0
    return True


def legal_micro_batches(schedule: ScheduleName, pipeline: int) -> str:
    """The legal counts, for people: `4 or more`, or `1, 2, 3, 4, 6, 8, 10, …`."""
    taken = [count for count in range(1, 5 * pipeline + 1) if takes_micro_batches(schedule, pipeline, count)]
    if taken == list(range(taken[0], 5 * pipeline + 1)):
        return f"{taken[0]} or more"
    return ", ".join(map(str, taken)) + ", …"


def may_compile(config: ParallelConfig) -> bool:
    """Schedules that cut the backward pass in two need the graph that compiling hides, and so does a choice of what to
    compute again."""
    return config.recompute != "selective" and (config.pipeline == 1 or config.schedule not in SPLIT_BACKWARD)


def check_compile(config: ParallelConfig, compiles: str) -> None:
    """Whether blocks can be compiled, where that is asked for."""
    if compiles == "on" and config.recompute == "selective":
        raise bad_value(
            "train.compile",
            "on",
            "parallel.recompute = selective chooses among operations, which compiled units do not show",
            "set --train.compile off, or --parallel.recompute full or none",
        )
    if compiles == "on" and not may_compile(config):
        raise bad_value(
            "train.compile",
            "on",
            f"schedule {config.schedule} splits the backward pass, which compiled blocks do not let it",
            "set --train.compile off, or --parallel.schedule 1f1b or interleaved",
        )


def check_device(config: ParallelConfig, adapter: DeviceAdapter) -> None:
    """Whether the device's libraries are known to do more than plain data parallelism."""
    if adapter.parallelism == "full":
        return
    for name in ("tensor", "pipeline", "shard"):
        value = getattr(config, name)
        if value != getattr(DEFAULT, name):
            raise bad_value(
                f"parallel.{name}",
                value,
                f"on {adapter.name} only plain data parallelism is known to work",
                f"set --parallel.{name} {getattr(DEFAULT, name)}, or choose another --device",
            )


def _check_list(stages: tuple[int, ...], layers: int) -> None:
    shown = ",".join(map(str, stages))
    if len(stages) != layers:
        why = f"it names a stage for each of {len(stages)} layers, and the model has {layers}"
    elif stages[0] != 0:
        why = f"the first layer is in stage {stages[0]}, and stages count from 0"
    else:
        for layer, (before, here) in enumerate(zip(stages, stages[1:], strict=False), start=1):
            if here < before:
                why = f"it goes back from stage {before} to {here} at layer {layer}"
                break
            if here > before + 1:
                why = f"it skips stage {before + 1} at layer {layer}"
                break
        else:
            return
    raise bad_value("parallel.stages", shown, why, "e.g. 0,0,1,1 puts four layers into two stages; or set it to auto")


def _check_count(config: ParallelConfig, count: int) -> None:
    pipeline, schedule = config.pipeline, config.schedule
    if schedule in LOOPED:
        fits, wanted = count % pipeline == 0, f"{pipeline}, {2 * pipeline}, {3 * pipeline}, …"
    elif schedule in FOLDED:
        fits, wanted = count == 2 * pipeline, f"exactly {2 * pipeline}"
    else:
        fits, wanted = count == pipeline, f"exactly {pipeline}"
    if not fits:
        raise bad_value(
            "parallel.stages",
            f"{count} stages",
            f"schedule {schedule} over {pipeline} processes takes {wanted}",
            "change the list, --parallel.pipeline or --parallel.schedule; or set --parallel.stages auto",
        )


def _no_effect(field: str, value: object, why: str) -> ConfigError:
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
    return bad_value(field, shown, f"{why}, so it would have no effect", "leave it out, or change the layout")


def _legal(counts: list[int]) -> str:
    return "legal: " + ", ".join(map(str, counts))
