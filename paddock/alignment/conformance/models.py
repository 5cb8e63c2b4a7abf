"""Models on a device, beside the same on the host: operator by operator, in training, in writing, in fewer bits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paddock.alignment.conformance.checks import Wrong, relative_error
from paddock.alignment.conformance.operators import Call, Phase, replay
from paddock.alignment.conformance.recording import record, write
from paddock.alignment.conformance.small import STEPS, SmallModel, host, open_small
from paddock.alignment.trace import computing_in
from paddock.parallel.world import World

LEAST_TOLERANCE = 1e-5
"""What a loss in float32 may differ by, relative to the host's; more where the host's own rounding makes more of it."""
MARGIN = 16.0
SMALLEST = 1e-4
"""Of the norm of all gradients: a smaller one counts as if it had this size."""
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


def check_gradients(world: World, small: SmallModel) -> str:
    """Every parameter's gradient is the host's: losses of a few steps hide much of what is wrong in a backward pass."""
    with computing_in("float64"):
        right = _gradients(small, host())
    here, there = _gradients(small, host()), _gradients(small, world)
    whole = math.sqrt(sum(float(one.square().sum()) for one in right.values()))
    worst, bad = 0.0, []
    for name, exact in right.items():
        size = max(
            float(exact.norm()), SMALLEST * whole
        )  # some are zero but for rounding, such as that of a key's bias
        own, error = (float((one[name] - exact).norm()) / size for one in (here, there))
        allowed = max(LEAST_TOLERANCE, MARGIN * own)
        worst = max(worst, error)
        if not error <= allowed:
            bad.append(f"{name}: off by {error:.1e}, {allowed:.1e} allowed")
    if bad:
        bad.reverse()  # what is wrong comes from the output side
        raise Wrong(f"{len(bad)} of {len(right)}: " + "; ".join(bad[:4]) + (" …" if len(bad) > 4 else ""))
    return f"{len(right)} parameters, off by {worst:.1e} at most"


def _gradients(small: SmallModel, world: World) -> dict[str, Tensor]:
    """Of the first step, by the parameters' names, on the host."""
    run = open_small(small, world)
    run.engine.forward_backward(run.batches, 0.01)
    (model,) = run.engine.models
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: gradient.cpu().double() for name, gradient in found.items() if gradient is not None}


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
