"""Silent data corruption: a step's forward and backward passes computed twice, and compared before the update.

The same batch, seed and statistics give the same bits on a device that works, so a difference is an error of the
hardware, in this step. Nothing is read from the device for it: whether anything differs is counted there, and comes
with the loss. Only if it does is the step computed a third time, which tells which of the two was wrong, and where.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from paddock.errors import NumericsError
from paddock.parallel.engine import Engine
from paddock.parallel.world import World
from paddock.training.checksums import Checksums, Entry, Origin

EACH_TIME = "each time another"


@dataclass(frozen=True)
class Difference:
    """Where a process computed something else than the first time."""

    rank: int
    host: str
    place: int
    """In the pipeline: processes at one place compute the same things, in one order."""
    first: int
    """Number of the first thing that differed."""
    name: str
    origin: Origin
    wrong: str
    """Which computation was not like the third: the first, the second, or neither was."""


class Replay:
    """One step, computed twice."""

    def __init__(self, engine: Engine, passes: Callable[[], Tensor], *, inside: bool) -> None:
        """`passes` seeds, goes forward and backward, and returns the loss. `inside`: whether to look into modules."""
        self._engine, self._passes, self._inside = engine, passes, inside
        self._buffers = [buffer for model in engine.models for buffer in model.buffers()]
        self._before = [buffer.clone() for buffer in self._buffers]
        self._computed: list[list[Entry]] = []
        self.loss_sum = self._compute()
        self._restore()
        self.loss_sum = self._compute()
        self.differing = self._count_differing()
        """How many things differ in this process; it stays on the device."""

    def _compute(self) -> Tensor:
        engine = self._engine
        with Checksums(engine.stages.values(), self._inside) as sums:
            loss_sum = self._passes()
        sums.note("the loss", loss_sum)
        gradients = [(name, p.grad) for model in engine.models for name, p in model.named_parameters()]
        for name, gradient in gradients:
            if gradient is not None:
                sums.note(f"the summed gradient of {name}", gradient, "summed")
        for buffer in self._buffers:
            sums.note("statistics", buffer)
        self._computed.append(sums.entries)
        return loss_sum

    def _restore(self) -> None:
        for parameter in self._engine.trained:
            parameter.grad = None
        for buffer, before in zip(self._buffers, self._before, strict=True):
            buffer.copy_(before)

    def _count_differing(self) -> Tensor:
        first, second = (torch.stack([entry.value for entry in entries]) for entries in self._computed)
        assert len(first) == len(second), "two computations of a step went different ways"
        return (first != second).sum()

    def explain(self, world: World) -> Difference | None:
        """Compute the step once more; called by all processes, if anything differed in one of them."""
        self._restore()
        self._compute()
        first, second, third = ([int(entry.value) for entry in entries] for entries in self._computed)
        number = next((number for number in range(len(first)) if first[number] != second[number]), None)
        if number is None:
            return None
        wrong = EACH_TIME
        if third[number] in (first[number], second[number]):
            wrong = "first" if third[number] == second[number] else "second"
        entry = self._computed[0][number]
        # Hooks of one tensor run in the order in which they came: that of the module that made it before the stage's.
        same = number
        while same + 1 < len(first) and (first[same], second[same]) == (first[same + 1], second[same + 1]):
            same += 1
            entry = self._computed[0][same] if self._computed[0][same].origin == "received" else entry
        place = self._engine.mesh.pipeline_rank
        return Difference(world.rank, socket.gethostname(), place, number, entry.name, entry.origin, wrong)


def corruption_error(step: int, replay: Replay, world: World) -> NumericsError:
    """What to say of a step whose two computations differ; called by all processes together."""
    own = replay.explain(world)
    told = [json.loads(text) for text in world.all_gather(json.dumps(own and asdict(own)))]
    everyone = [Difference(**one) for one in told if one is not None]
    found = where_it_began(everyone)
    places = ", ".join(f"rank {one.rank} (on {one.host})" for one in found)
    what = f"step {step}: computed twice, it is not the same on {places}"
    if len(found) > 1:
        what += "; which of them was first cannot be told"
    if all(one.wrong == EACH_TIME for one in found):
        return NumericsError(
            what,
            why=f"{found[0].name} is another one each time, so that this device repeats nothing bit by bit",
            fix="a device that is not deterministic cannot be checked so: --train.replay-every None; if it is, look at "
            "the machine",
        )
    why = "; ".join(
        f"on rank {one.rank}, {one.name} is the first that differs, and the {one.wrong} computation was wrong"
        if one.wrong != EACH_TIME
        else f"on rank {one.rank}, {one.name} is the first that differs, each time another"
        for one in found
    )
    return NumericsError(
        what,
        why=f"{why}: an error of the hardware. The step was not applied",
        fix=f"take {' and '.join(sorted({one.host for one in found}))} out of service or test it, and go on from the "
        "last checkpoint with --checkpoint.load auto",
    )


def where_it_began(differences: Sequence[Difference]) -> list[Difference]:
    """Those who were the first to differ in something of their own: the others were sent it, or summed it up."""
    for origin in ("own", "summed", "received"):
        candidates = [one for one in differences if one.origin == origin]
        if candidates:
            places = {
                one.place: min(other.first for other in candidates if other.place == one.place) for one in candidates
            }
            return [one for one in candidates if one.first == places[one.place]]
    return list(differences)
