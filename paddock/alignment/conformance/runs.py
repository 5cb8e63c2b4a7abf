"""What a training run asks of a device besides numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from paddock.alignment.conformance.checks import TOLERANCE, Skipped, Wrong, relative_error
from paddock.alignment.conformance.small import STEPS, SmallModel, host, open_small
from paddock.alignment.host_reads import DeviceReads
from paddock.checkpoint.loading import load_models
from paddock.checkpoint.storage import write_checkpoint
from paddock.checkpoint.tensors import tensors_of
from paddock.parallel.placement import local
from paddock.parallel.world import World
from paddock.training.compilation import compile_units, find_compiler, why_not_compiled

FOLLOWING = 2
"""Steps that are trained behind a checkpoint: the first shows its weights, the second what the optimizer kept."""


def check_memory(world: World) -> str:
    adapter = world.adapter
    before = adapter.memory_used()
    if before is None:
        raise Skipped("the device does not say how much memory is used")
    wanted = 2**26 if adapter.computes_on_host else before + 2**24
    held = torch.ones(wanted // 4, device=world.device)
    adapter.synchronize()
    found = adapter.memory_used() or 0
    if found < held.nbytes or (not adapter.computes_on_host and found > before + held.nbytes + 2**24):
        raise Wrong(f"{before:,} bytes were used at most, then {held.nbytes:,} more: it says {found:,}")
    return f"{found:,} bytes at most"


def check_reads(world: World, small: SmallModel) -> str:
    if world.adapter.computes_on_host:
        return "the host computes: there is nothing to read back"
    run = open_small(small, world)
    run.train(1)
    with DeviceReads(world.device.type) as passes:
        run.step.launch(1, run.batches, terms=100.0)
    with DeviceReads(world.device.type) as update:
        run.step.complete()
    if passes.count or update.count != 1:
        names = ", ".join(f"{name} × {count}" for name, count in (passes.by_name + update.by_name).items())
        raise Wrong(f"{passes.count} reads in the passes and {update.count} in the update, not 0 and 1: {names}")
    return "one in a step"


def check_checkpoint(world: World, small: SmallModel, folder: Path) -> str:
    """Saved on the device, and read there and on the host, every bit is the same; and training goes on as it would, but
    for sums that a device may add up in another order each time."""
    run = open_small(small, world)
    run.train(2)
    saved = tensors_of(run.engine.models, run.optimizer)
    write_checkpoint(folder / "checkpoint", saved, {"step": 2})
    kept = {name: local(tensor).clone() for name, tensor in saved.items()}
    following = [step.loss for step in run.train(FOLLOWING)]
    for place in (world, host()):
        again = open_small(small, place, seed=99)
        load_models(folder / "checkpoint", again.engine.models, again.optimizer)
        found = tensors_of(again.engine.models, again.optimizer)
        for name, tensor in kept.items():
            read = local(found[name])
            if not torch.equal(read, tensor.to(read.device)):  # of the device's numbers, where the device reads
                raise Wrong(f"{name} is another, read on {place.adapter.name}")
        if place is world:
            again.number = 2
            check_following([step.loss for step in again.train(FOLLOWING)], following)
    return f"{len(kept)} tensors, bit for bit"


def check_following(found: Sequence[float], right: Sequence[float]) -> None:
    """The losses of a run that goes on from a checkpoint are those of the run that saved it."""
    for number, (one, other) in enumerate(zip(found, right, strict=True), start=1):
        if not relative_error(one, other) <= TOLERANCE:
            raise Wrong(f"step {number} after it: loss {one:.7g}, that of the run that saved it is {other:.7g}")


def check_determinism(world: World, small: SmallModel) -> str:
    runs = [open_small(small, world) for _ in range(2)]
    first, second = ([(one.loss, one.norm) for one in run.train(STEPS)] for run in runs)
    weights = zip(*(tensors_of(run.engine.models, None).values() for run in runs), strict=True)
    same = all(torch.equal(local(one), local(other)) for one, other in weights)
    if first != second or not same:
        raise Wrong(f"two runs alike differ: losses {[loss for loss, _ in first]} and {[loss for loss, _ in second]}")
    return f"{STEPS} steps twice, bit for bit"


def check_compiled(world: World, small: SmallModel, asked: bool) -> str:
    if not asked:
        raise Skipped("not asked for")
    if find_compiler(world.adapter) is None:
        raise Skipped(why_not_compiled(world.adapter))
    run = open_small(small, world, compile_units=lambda units: _compile(units, world))
    eager, compiled = open_small(small, world).train(STEPS), run.train(STEPS)
    worst = max(relative_error(one.loss, other.loss) for one, other in zip(compiled, eager, strict=True))
    if not worst <= 1e-4:
        raise Wrong(f"compiled losses are off by {worst:.1e}, 1.0e-04 allowed")
    return f"losses off by {worst:.1e} at most"


def _compile(units: Sequence[nn.Module], world: World) -> None:
    compile_units(units, "on", world.adapter, 0)
