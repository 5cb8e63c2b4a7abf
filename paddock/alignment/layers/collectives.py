"""What devices exchange in a training step, beside sums and copies that the host makes: every kind of collective that
training uses, on tensors as large as the model's own.

A library takes other ways for other sizes, so each size that the model has is tried once, under the name of the first
parameter that has it. Every process can draw the numbers of all, and so knows what is right without asking anybody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paddock.alignment.layers.closeness import SAME, Distance, distance, farthest, unremarkable
from paddock.alignment.layers.comparison import Compared
from paddock.devices import select
from paddock.files import scratch_folder
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.parallel.world import World, join_world

EXCHANGE = "exchange"
Shapes = Mapping[str, Sequence[int]]


def compare_collectives(shapes: Shapes, device: str, options: LaunchOptions) -> list[Compared]:
    """Every kind of collective on tensors of these shapes, over the devices of a job."""
    payload = {"device": device, "shapes": {name: list(shape) for name, shape in of_each_size(shapes).items()}}
    with scratch_folder() as folder:
        rows = run("paddock.alignment.layers.collectives:work", payload, options, folder)
    allowed = unremarkable(torch.float32)
    return [
        Compared(EXCHANGE, "collective", name, Distance(whole, worst), SAME if exact else allowed)
        for name, exact, whole, worst in rows
    ]


def of_each_size(shapes: Shapes) -> dict[str, Sequence[int]]:
    """The first tensor of each size."""
    found: dict[int, str] = {}
    for name, shape in shapes.items():
        found.setdefault(prod(shape), name)
    return {name: shapes[name] for name in found.values()}


def work(payload: dict[str, Any]) -> list[list[Any]]:
    """One process's part; what the processes found together: of each collective its name, whether it only copies, and
    how far it was away."""
    torch.set_num_threads(1)
    rows: list[list[Any]] = []
    with join_world(select(payload["device"])) as world:
        for number, (name, shape) in enumerate(payload["shapes"].items()):
            for kind, exact, found, right in _exchanged(world, prod(shape), seed=number):
                mine = json.dumps(asdict(distance(found.cpu(), right)))
                worst = farthest(Distance(**json.loads(told)) for told in world.all_gather(mine))
                rows.append([f"{kind} of {name}", exact, worst.whole, worst.worst])
    return rows


def _exchanged(world: World, count: int, seed: int) -> Iterator[tuple[str, bool, Tensor, Tensor]]:
    """The name of each collective, whether it only copies, what came of it, and what is right."""
    length = -(-count // world.size) * world.size  # as sharding pads it
    numbers = [_drawn(length, seed * world.size + rank) for rank in range(world.size)]
    total = torch.stack(numbers).sum(0, dtype=torch.float64).to(torch.float32)
    mine: Callable[[], Tensor] = lambda: numbers[world.rank].to(world.device, copy=True)  # noqa: E731
    part = length // world.size
    own = slice(world.rank * part, (world.rank + 1) * part)

    reduced = mine()
    dist.all_reduce(reduced)
    yield "all_reduce", False, reduced, total
    scattered = mine().new_empty(part)
    dist.reduce_scatter_single(scattered, mine())
    yield "reduce_scatter", False, scattered, total[own]
    whole = mine().new_empty(length)
    dist.all_gather_single(whole, mine()[own].contiguous())
    yield "all_gather", True, whole, torch.cat([one.chunk(world.size)[rank] for rank, one in enumerate(numbers)])
    sent = mine()
    dist.broadcast(sent, src=world.size - 1)
    yield "broadcast", True, sent, numbers[-1]
    received, behind, before = mine(), (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for one in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, mine(), behind), dist.P2POp(dist.irecv, received, before)]
    ):
        one.wait()
    yield "send and recv", True, received, numbers[before]


def _drawn(count: int, seed: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))
