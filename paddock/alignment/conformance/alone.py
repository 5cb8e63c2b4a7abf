"""The checks that one device can be put through by itself, in the order of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from paddock.alignment.conformance import models as on_device
from paddock.alignment.conformance import numbers, runs
from paddock.alignment.conformance.checks import Check
from paddock.alignment.conformance.operators import Phase
from paddock.alignment.conformance.report import Tier
from paddock.alignment.conformance.small import SmallModel
from paddock.parallel.world import World

PHASES: dict[Phase, Tier] = {
    "forward": "inference",
    "writing": "inference",
    "backward": "data parallel",
    "update": "data parallel",
}
WHOLE_TYPES = ("int64", "int32", "uint8", "bool")


def checks_alone(world: World, models: Sequence[SmallModel], folder: Path, compiles: bool) -> Iterator[Check]:
    """All of them, in the order of the report."""
    adapter = world.adapter
    for name in ("float32", *adapter.autocast, "float64", *WHOLE_TYPES):
        yield Check(f"type {name}", "inference", partial(numbers.check_type, world, name))
    yield Check("copies from the host", "inference", partial(numbers.check_copies, world))
    yield Check("random numbers", "inference", partial(numbers.check_random, world))
    for small in models:
        played = on_device.Operators(small, world)
        for phase, tier in PHASES.items():
            if phase != "writing" or small.writes:
                yield Check(f"operators of {small.name}, {phase}", tier, partial(played.check, phase))
    for small in models:
        yield Check(f"gradients of {small.name}", "data parallel", partial(on_device.check_gradients, world, small))
        yield Check(f"training of {small.name}", "data parallel", partial(on_device.check_training, world, small))
    for small in (one for one in models if one.writes):
        yield Check(f"writing of {small.name}", "inference", partial(on_device.check_writing, world, small))
    first = models[0]
    for name in adapter.autocast:
        yield Check(f"autocast to {name}", "inference", partial(on_device.check_autocast, world, first, name))
    yield Check("loss scaling", "data parallel", partial(on_device.check_loss_scale, world, first))
    yield Check("memory accounting", "data parallel", partial(runs.check_memory, world))
    yield Check("host reads", "data parallel", partial(runs.check_reads, world, first))
    yield Check("checkpoint", "data parallel", partial(runs.check_checkpoint, world, first, folder))
    yield Check("determinism", None, partial(runs.check_determinism, world, first))
    yield Check("eager and compiled", None, partial(runs.check_compiled, world, first, compiles))
