"""Models on a device, beside the same on the host: operator by operator, in training, in writing, in fewer bits."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from paddock.alignment.conformance.checks import Wrong, relative_error
from paddock.alignment.conformance.numbers import check_product
from paddock.alignment.conformance.operators import Call, Phase, replay
from paddock.alignment.conformance.recording import decode, host_in_place_of, record, write
from paddock.alignment.conformance.small import STEPS, SmallModel, host, open_small
from paddock.alignment.trace import computing_in
from paddock.parallel.world import World

LEAST_TOLERANCE = 1e-5
"""What a loss in float32 may differ by, relative to the host's; more where the host's own rounding makes more of it."""
MARGIN = 16.0
SMALLEST = 1e-4
"""Of the norm of all gradients: a smaller one counts as if it had this size."""
MARGIN_IN_FEWER_BITS = 4.0
"""The same of gradients in a type of fewer bits, taken together: their rounding is large enough to hide errors in."""
OVERFLOWS = 2.0**24
"""A loss scale that float16 cannot hold the gradients of a small model in."""
SAFE_SCALE = 2.0**10
"""One that it can hold them in, the smallest too."""


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


def _gradients(small: SmallModel, world: World, compute: str = "float32") -> dict[str, Tensor]:
    """Of the first step, by the parameters' names, on the host."""
    run = open_small(small, world, compute=compute)
    scale = 1.0 if compute == "float32" else SAFE_SCALE
    run.engine.forward_backward(run.batches, 0.01 * scale)
    (model,) = run.engine.models
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {name: gradient.cpu().double() / scale for name, gradient in found.items() if gradient is not None}


def check_writing(world: World, small: SmallModel) -> str:
    """The same tokens as on the host; and since few of them turn on a small error, what they are chosen by."""
    found, right = (write(open_small(small, one).engine.models[0]) for one in (world, host()))
    if found != right:
        raise Wrong("it writes other tokens than the host")
    with computing_in("float64"):
        exact = _logits(small, host())
    here, there, worst = _logits(small, host()), _logits(small, world), 0.0
    for number, (wanted, ours, theirs) in enumerate(zip(exact, here, there, strict=True), start=1):
        own, error = (float((one - wanted).norm() / wanted.norm()) for one in (ours, theirs))
        allowed = max(LEAST_TOLERANCE, MARGIN * own)
        worst = max(worst, error)
        if not error <= allowed:
            raise Wrong(f"logits of pass {number} of {len(exact)} are off by {error:.1e}, {allowed:.1e} allowed")
    return f"{len(right)} texts, as on the host; logits off by {worst:.1e} at most"


def _logits(small: SmallModel, world: World) -> list[Tensor]:
    """Of passes that write, on the host."""
    return [logits.cpu().double() for logits in decode(open_small(small, world).engine.models[0])]


def check_autocast(world: World, small: SmallModel, name: str) -> str:
    dtype = getattr(torch, name)
    eps = torch.finfo(dtype).eps
    here = torch.rand(16, 24, generator=torch.Generator().manual_seed(1)) - 0.5
    there = here.to(world.device)
    with torch.autocast(world.adapter.torch_type, dtype):
        product = there @ there.T
        likely = product.softmax(-1)
    kept = (
        dtype if world.adapter.computes_on_host else torch.float32
    )  # where the host computes, a softmax stays as it is
    if product.dtype != dtype or likely.dtype != kept:
        raise Wrong(f"products are {product.dtype}, and a softmax is {likely.dtype}")
    rounded = here.to(dtype).double()
    check_product(product, rounded @ rounded.T)
    with computing_in("float64"):
        right = _gradients(small, host())
    with host_in_place_of(world.adapter) as alike:
        own = _away(_gradients(small, alike, compute=name), right)
    error, allowed = _away(_gradients(small, world, compute=name), right), MARGIN_IN_FEWER_BITS * max(own, eps)
    if not error <= allowed:
        raise Wrong(f"gradients are off by {error:.1e}, {allowed:.1e} allowed")
    return f"gradients off by {error:.1e}"


def _away(found: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    """How far gradients are off as a whole."""
    squares = sum(float((found[name] - exact).square().sum()) for name, exact in right.items())
    return math.sqrt(squares / sum(float(exact.square().sum()) for exact in right.values()))


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
    right = open_small(small, host()).train(1)[0].norm
    own = relative_error(open_small(small, host(), compute="float16", scale=SAFE_SCALE).train(1)[0].norm, right)
    error, allowed = relative_error(result.norm, right), MARGIN_IN_FEWER_BITS * max(own, torch.finfo(torch.float16).eps)
    if not error <= allowed:
        raise Wrong(
            f"gradient norm {result.norm:.5g}, in float32 {right:.5g}: off by {error:.1e}, {allowed:.1e} allowed"
        )
    return f"{run.scale.skipped} steps skipped, until the scale was {run.scale.value:g}"
