"""The checks that take several devices: every kind of collective that training uses, and layouts over two; where
there are eight, layouts with all kinds of parallelism at once."""

from __future__ import annotations

import faulthandler
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard

from paddock.alignment.conformance.checks import TOLERANCE, Check, Wrong, relative_error
from paddock.alignment.conformance.report import FOR_ALL_KINDS, Row, Tier
from paddock.alignment.conformance.runs import FOLLOWING, check_following
from paddock.alignment.conformance.small import STEPS, open_small, small_models
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.devices import select
from paddock.files import atomic_write, scratch_folder
from paddock.parallel.config import ParallelConfig
from paddock.parallel.world import World, join_world

PROCESSES = 2
LAYOUTS: dict[str, tuple[Tier, dict[str, Any]]] = {
    "data 2": ("data parallel", {}),
    "data 2, shard optimizer": ("data parallel", {"shard": "optimizer"}),
    "data 2, shard parameters": ("data parallel", {"shard": "parameters"}),
    "tensor 2": ("full 3D", {"tensor": 2}),
    "tensor 2, sequence": ("full 3D", {"tensor": 2, "sequence": True}),
    "pipeline 2": ("full 3D", {"pipeline": 2}),
}
LAYOUTS_OF_ALL_KINDS: dict[str, dict[str, Any]] = {
    "data 2, tensor 2, pipeline 2": {"tensor": 2, "pipeline": 2},
    "data 2, tensor 2, pipeline 2, shard parameters, sequence": {
        **{"tensor": 2, "pipeline": 2},
        **{"shard": "parameters", "sequence": True},
    },
}


def work(payload: dict[str, Any]) -> None:
    """One process's part: all checks, one after the other. The first writes down what it has so far, so that a check
    that never ends, or ends the process, is known to be the next one."""
    adapter, result = select(payload["device"]), Path(payload["result"])
    rows: list[Row] = []
    torch.set_num_threads(1)
    with join_world(adapter, payload["fallback"]) as world:
        for planned in PLANS[world.size]:
            check = Check(planned.name, planned.tier, partial(planned.run, world, payload["family"]))
            faulthandler.dump_traceback_later(payload["patience"], exit=True)  # of a thread that no collective holds up
            row = replace(check.row(), devices=world.size)
            told = [Row(**json.loads(text)) for text in world.all_gather(json.dumps(asdict(row)))]
            faulthandler.cancel_dump_traceback_later()
            rows.append(next((one for one in told if one.verdict == "fail"), row))
            if world.is_main:
                with atomic_write(result) as stream:
                    json.dump({"rows": [asdict(one) for one in rows]}, stream)


def _numbers(world: World, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """What every process begins with, known to all; whole numbers, so that sums are exact, in eight bits too."""
    count = 1000
    return [torch.arange(count).add(rank).remainder(97).to(dtype) for rank in range(world.size)]


def _types(world: World, *others: torch.dtype) -> list[torch.dtype]:
    """What weights, gradients and outputs may be of, where a device computes in fewer bits, too."""
    return [torch.float32, *(getattr(torch, name) for name in world.adapter.autocast), *others]


def _said(types: Sequence[torch.dtype]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in types)


def _expect(found: Tensor, right: Tensor) -> None:
    if not torch.equal(found.cpu(), right):
        wrong = int((found.cpu() != right).sum())
        raise Wrong(f"{wrong} of {right.numel()} numbers are wrong" + _of_type(right))


def _of_type(tensor: Tensor) -> str:
    return "" if tensor.dtype == torch.float32 else f", in {_said([tensor.dtype])}"


def _all_reduce(world: World) -> str:
    types = _types(world, torch.int64, *([torch.float64] if world.adapter.float64 else []))
    for dtype in types:
        numbers = _numbers(world, dtype)
        mine = numbers[world.rank].to(world.device, copy=True)
        dist.all_reduce(mine)
        _expect(mine, torch.stack(numbers).sum(0, dtype=dtype))
    numbers = _numbers(world)
    mine = numbers[world.rank].to(world.device, copy=True)
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    _expect(mine, torch.stack(numbers).amax(0))
    work = dist.all_reduce(torch.ones(4, device=world.device), async_op=True)
    assert work is not None
    work.wait()
    return f"sum and maximum; {_said(types)}"


def _broadcast(world: World) -> str:
    types = _types(world, torch.int64, torch.uint8)
    for dtype in types:
        numbers = _numbers(world, dtype)
        for source in range(world.size):
            mine = numbers[world.rank].to(world.device, copy=True)
            dist.broadcast(mine, src=source)
            _expect(mine, numbers[source])
    return _said(types)


def _all_gather(world: World) -> str:
    types = _types(world, torch.int64, torch.uint8)
    for dtype in types:
        numbers = _numbers(world, dtype)
        mine = numbers[world.rank].to(world.device, copy=True)
        parts = [torch.empty_like(mine) for _ in numbers]
        dist.all_gather(parts, mine)
        _expect(torch.stack(parts), torch.stack(numbers))
    return _said(types)


def _all_gather_single(world: World) -> str:
    types = _types(world)
    for dtype in types:
        numbers = _numbers(world, dtype)
        mine = numbers[world.rank].to(world.device, copy=True)
        whole = mine.new_empty(len(numbers) * len(mine))
        dist.all_gather_single(whole, mine)
        _expect(whole, torch.cat(numbers))
    return _said(types)


def _reduce_scatter_single(world: World) -> str:
    types = _types(world)
    for dtype in types:
        numbers = _numbers(world, dtype)
        part = torch.empty(len(numbers[0]) // world.size, device=world.device, dtype=dtype)
        dist.reduce_scatter_single(part, numbers[world.rank].to(world.device, copy=True))
        _expect(part, torch.stack(numbers).sum(0, dtype=dtype).chunk(world.size)[world.rank])
    return f"sum; {_said(types)}"


def _gather_and_scatter(world: World) -> str:
    """To the first process and from it, as what a checkpoint holds is agreed on."""
    types = (torch.int64, torch.uint8)
    for dtype in types:
        numbers = _numbers(world, dtype)
        mine = numbers[world.rank].to(world.device, copy=True)
        parts = [torch.empty_like(mine) for _ in numbers] if world.is_main else None
        dist.gather(mine, parts)
        if parts is not None:
            _expect(torch.stack(parts), torch.stack(numbers))
        part = torch.empty_like(mine)
        dist.scatter(part, parts)
        _expect(part, numbers[world.rank])
    return _said(types)


def _send_and_receive(world: World) -> str:
    other, types = (world.rank + 1) % world.size, _types(world, torch.int32)
    for dtype in types:
        numbers = _numbers(world, dtype)
        mine = numbers[world.rank].to(world.device, copy=True)
        theirs = torch.empty_like(mine)
        both = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, theirs, other)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        _expect(theirs, numbers[other])
        theirs.zero_()
        if world.rank % 2 == 0:
            dist.send(mine, dst=other)
            dist.recv(theirs, src=other)
        else:
            dist.recv(theirs, src=other)
            dist.send(mine, dst=other)
        _expect(theirs, numbers[other])
    return _said(types)


def _tensors_over_both(world: World) -> str:
    """What DTensor does to make parts whole, sums of what is not summed yet, and parts of such sums."""
    numbers = _numbers(world)
    mesh = init_device_mesh(world.device.type, (world.size,))
    mine = numbers[world.rank].to(world.device, copy=True)
    total = torch.stack(numbers).sum(0)
    _expect(DTensor.from_local(mine, mesh, [Shard(0)]).full_tensor(), torch.cat(numbers))
    _expect(DTensor.from_local(mine, mesh, [Partial()]).full_tensor(), total)
    part = DTensor.from_local(mine, mesh, [Partial()]).redistribute(placements=[Shard(0)]).to_local()
    _expect(part, total.chunk(world.size)[world.rank])
    return "gathered, summed, and scattered sums"


def _checkpoint(world: World, family: str) -> str:
    """What two devices save, each its shards, one reads as a whole, and goes on with."""
    small = small_models([family])[0]
    run = open_small(small, world, parallel=ParallelConfig(shard="parameters"))
    run.train(2)
    with scratch_folder() as folder:
        path = Path(world.broadcast(str(folder))) / "checkpoint"
        write_checkpoint(path, tensors_of(run.engine.models, run.optimizer), {"step": 2})
        alone = open_small(small, World(0, 1, world.adapter, world.device), seed=99)
        load_models(path, alone.engine.models, alone.optimizer)
        world.barrier()
    alone.number = 2
    right = [step.loss for step in run.train(FOLLOWING)]
    check_following([step.loss for step in alone.train(FOLLOWING)], right)
    return "saved by both, read by one"


def _check_layout(parallel: ParallelConfig, world: World, family: str) -> str:
    """A model over all of them trains as over one."""
    small = small_models([family])[0]
    # First alone, where a kernel that is missing keeps nobody waiting.
    right = open_small(small, World(0, 1, world.adapter, world.device)).train(STEPS)
    found = open_small(small, world, parallel=parallel).train(STEPS)
    pairs = [
        pair
        for one, other in zip(found, right, strict=True)
        for pair in ((one.loss, other.loss), (one.norm, other.norm))
    ]
    worst = max(relative_error(*pair) for pair in pairs)
    if not worst <= TOLERANCE:
        raise Wrong(f"{STEPS} steps are off by {worst:.1e} from those of one device, {TOLERANCE:.0e} allowed")
    return f"{STEPS} steps, off by {worst:.1e} at most"


@dataclass(frozen=True)
class Planned:
    """A check before there are processes for it."""

    name: str
    tier: Tier | None
    run: Callable[[World, str], str]
    """Given the world, and the family of models to try."""


def _moving(name: str, tier: Tier, move: Callable[[World], str]) -> Planned:
    return Planned(name, tier, lambda world, family: move(world))


CHECKS = (
    _moving("collective all_reduce", "data parallel", _all_reduce),
    _moving("collective broadcast", "data parallel", _broadcast),
    _moving("collective all_gather_single", "data parallel", _all_gather_single),
    _moving("collective reduce_scatter_single", "data parallel", _reduce_scatter_single),
    _moving("collective all_gather", "data parallel", _all_gather),
    _moving("collective gather and scatter", "data parallel", _gather_and_scatter),
    Planned("checkpoint of two", "data parallel", _checkpoint),
    _moving("collective send and recv", "full 3D", _send_and_receive),
    _moving("tensors over both (DTensor)", "full 3D", _tensors_over_both),
    *(
        Planned(f"layout {name}", tier, partial(_check_layout, ParallelConfig(**values)))
        for name, (tier, values) in LAYOUTS.items()
    ),
)
"""In the order of the report."""
CHECKS_OF_ALL_KINDS = tuple(
    Planned(f"layout {name}", "full 3D", partial(_check_layout, ParallelConfig(**values)))
    for name, values in LAYOUTS_OF_ALL_KINDS.items()
)
PLANS = {PROCESSES: CHECKS, FOR_ALL_KINDS: CHECKS_OF_ALL_KINDS}
"""The checks by how many processes make them, each with a device of its own."""
