"""Models on a device, beside the same on the host: operator by operator, in training, in writing, in fewer bits."""

from __future__ import annotations

import torch

from paddock.alignment.conformance.checks import Wrong, relative_error
from paddock.alignment.conformance.operators import Call, Phase, replay
from paddock.alignment.conformance.recording import record, write
from paddock.alignment.conformance.small import STEPS, SmallModel, host, open_small
from paddock.alignment.trace import computing_in
from paddock.parallel.world import World

LEAST_TOLERANCE = 1e-5
"""What a loss in float32 may differ by, relative to the host's; more where the host's own rounding makes more of it."""
MARGIN = 16.0
OVERFLOWS = 2.0**24
"""A loss scale that float16 cannot hold the gradients of a small model in."""


class Operators:
    """The operators of a small model, recorded when they are first asked for."""

    def __init__(self, small: SmallModel, world: World) -> None:
        self._small, self._world = small, world
        self._calls: dict[Phase, list[Call]] = {}

    def check(self, phase: Phase) -> str:
        if not self._calls:
            for call in record(self._small, self._world.adapter):
                self._calls.setdefault(call.phase, []).append(call)
        findings = [replay(call, self._world.device) for call in self._calls.get(phase, [])]
        names = {finding.operator for finding in findings}
        bad: dict[str, str] = {}
        for finding in findings:
            if not finding.holds:
                bad.setdefault(finding.operator, str(finding))
        if bad:
            raise Wrong(f"{len(bad)} of {len(names)}: " + "; ".join(sorted(bad.values())))
        return f"{len(names)} operators, {len(findings)} kinds of calls"


def check_training(world: World, small: SmallModel) -> str:
    """A few steps give the host's losses."""
    with computing_in("float64"):
        right = open_small(small, host()).train(STEPS)
    here, there = open_small(small, host()).train(STEPS), open_small(small, world).train(STEPS)
    worst = 0.0
    for number, (exact, own, found) in enumerate(zip(right, here, there, strict=True), start=1):
        for what in ("loss", "norm"):
            wanted, ours, theirs = (getattr(one, what) for one in (exact, own, found))
            allowed = max(LEAST_TOLERANCE, MARGIN * relative_error(ours, wanted))
            worst = max(worst, relative_error(theirs, wanted))
            if not relative_error(theirs, wanted) <= allowed:
                raise Wrong(
                    f"step {number}: {what} {theirs:.7g}, the host's is {wanted:.7g}: off by "
                    f"{relative_error(theirs, wanted):.1e}, {allowed:.1e} allowed"
                )
    return f"{STEPS} steps, off by {worst:.1e} at most"


def check_writing(world: World, small: SmallModel) -> str:
    found, right = (write(open_small(small, one).engine.models[0]) for one in (world, host()))
    if found != right:
        raise Wrong("it writes other tokens than the host")
    return f"{len(right)} texts, as on the host"


def check_autocast(world: World, small: SmallModel, name: str) -> str:
    dtype = getattr(torch, name)
    with torch.autocast(world.adapter.torch_type, dtype):
        product = torch.ones(4, 4, device=world.device) @ torch.ones(4, 4, device=world.device)
        likely = product.softmax(-1)
    kept = (
        dtype if world.adapter.computes_on_host else torch.float32
    )  # where the host computes, a softmax stays as it is
    if product.dtype != dtype or likely.dtype != kept:
        raise Wrong(f"products are {product.dtype}, and a softmax is {likely.dtype}")
    right = open_small(small, host()).train(1)[0].loss
    found = open_small(small, world, compute=name).train(1)[0].loss
    allowed = 4 * torch.finfo(dtype).eps
    error = relative_error(found, right)
    if not error <= allowed:
        raise Wrong(f"loss {found:.6g}, in float32 {right:.6g}: off by {error:.1e}, {allowed:.1e} allowed")
    return f"loss off by {error:.1e}"


def check_loss_scale(world: World, small: SmallModel) -> str:
    adapter = world.adapter
    if "float16" not in adapter.autocast or not adapter.float16_needs_loss_scale:
        return "not needed"
    run = open_small(small, world, compute="float16", scale=OVERFLOWS)
    before = run.scale.value
    for _ in range(24):
        result = run.train(1)[0]
        if run.scale.value == before:  # it was not halved: gradients were finite
            break
        before = run.scale.value
    else:
        raise Wrong(f"gradients are not finite with a loss scale of {before:g} either")
    if not run.scale.skipped:
        raise Wrong(f"gradients of a loss scaled by {OVERFLOWS:g} are said to be finite in float16")
    right = open_small(small, host()).train(1)[0]
    if relative_error(result.norm, right.norm) > 0.05:
        raise Wrong(f"gradient norm {result.norm:.4g}, in float32 {right.norm:.4g}")
    return f"{run.scale.skipped} steps skipped, until the scale was {run.scale.value:g}"
