"""Inside a part that went wrong: every operator that the device runs, beside the reference, with the operator's own
inputs.

What an operator should have given is computed on the reference from the same numbers, and goes on in its place, so that
each is judged by itself. How far it may be from that follows from how far the reference itself is from the same
operator in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from paddock.alignment.layers.closeness import SAME, Distance, distance, operator_tolerance
from paddock.alignment.layers.comparison import Direction
from paddock.alignment.layers.modules import ModuleTrace
from paddock.alignment.layers.noise import allow_noise, measure_noise
from paddock.alignment.layers.parts import PartRunner, Reference

NO_VALUES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
"""Operators whose result is whatever lies in memory."""
MOST_KEPT = 4
"""Failing operators whose inputs are kept, for a script that shows the failure."""


@dataclass(frozen=True)
class OperatorFinding:
    """An operator that differs from the reference by more than it may."""

    operator: str
    """As torch's dispatcher knows it: `aten.mm.default`."""
    module: str
    direction: Direction
    call: int
    """Which of the operators of the part it was."""
    distance: Distance
    allowed: Distance
    arguments: tuple[Sequence[Any], dict[str, Any]] | None = None
    """What it was given, on the reference device; of the first few alone."""

    @property
    def excess(self) -> float:
        """How many times farther than allowed."""
        return max(_times(self.distance.whole, self.allowed.whole), _times(self.distance.worst, self.allowed.worst))


def find_operators(
    part: str, reference: Reference, device: PartRunner, number_type: torch.dtype
) -> list[OperatorFinding]:
    """The operators of a part that are to blame, the worst first; none where the part fails only as a whole."""
    given, behind = reference.steps[part], reference.behind[part]
    with ModuleTrace(device.model, part) as trace:
        replay = OperatorReplay(reference.runner.device, device.device, number_type, trace)
        with replay:
            step = device.forward(part, given.inputs)
        trace.assign_rest(step.outputs.values())
        with replay.going("backward"):
            device.backward(step, behind)
    return sorted(replay.found, key=lambda finding: -finding.excess)


class OperatorReplay(TorchDispatchMode):
    """Compares every operator that runs inside with the reference, and lets the reference's result go on."""

    def __init__(
        self, reference: torch.device, device: torch.device, number_type: torch.dtype, trace: ModuleTrace
    ) -> None:
        super().__init__()
        self._reference, self._device, self._number_type, self._trace = reference, device, number_type, trace
        self._direction: Direction = "forward"
        self._calls = 0
        self.found: list[OperatorFinding] = []

    @contextmanager
    def going(self, direction: Direction) -> Iterator[None]:
        self._direction = direction
        with self:
            yield

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._calls += 1
        if not compares(func, (args, kwargs), self._device):
            return func(*args, **kwargs)
        given = self._on_reference((args, kwargs))
        found = func(*args, **kwargs)
        expected, wanted = self._compute(func, given)
        exact, _ = self._compute(func, pytree.tree_map_only(Tensor, _double, given), may_fail=True)
        results = _results(func, (args, kwargs), found)
        wanted = _results(func, wanted, expected)
        truth = None if exact is None else _results(func, _, exact)
        self._judge(func, results, wanted, truth, given)
        for result, right in zip(results, wanted, strict=True):
            result.copy_(right)
        return found

    def _on_reference(self, given: Any) -> Any:
        """What an operator is given, copied: it may write into it."""

        def moved(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return leaf.detach().to(self._reference, copy=True)
            return self._reference if isinstance(leaf, torch.device) else leaf

        return pytree.tree_map(moved, given)

    def _compute(self, func: Any, given: Any, may_fail: bool = False) -> tuple[Any, Any]:
        """The result on the reference, and what it was given, written into perhaps."""
        args, kwargs = pytree.tree_map_only(Tensor, torch.clone, given)
        try:
            return func(*args, **kwargs), (args, kwargs)
        except (RuntimeError, NotImplementedError, TypeError):
            if may_fail:  # it has no kernel in float64
                return None, (args, kwargs)
            raise

    def _once_more(self, func: Any, given: Any, number: int) -> dict[str, Tensor]:
        """One of the results, of the same numbers, from the device again."""

        def moved(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return leaf.to(self._device, copy=True)
            return self._device if isinstance(leaf, torch.device) else leaf

        args, kwargs = pytree.tree_map(moved, given)
        return {"": _results(func, (args, kwargs), func(*args, **kwargs))[number]}

    def _judge(
        self, func: Any, results: list[Tensor], wanted: list[Tensor], truth: list[Tensor] | None, given: Any
    ) -> None:
        for number, (result, right) in enumerate(zip(results, wanted, strict=True)):
            if (apart := distance(result, right)) == SAME:
                continue
            own = SAME if truth is None else distance(right.to(truth[number].dtype), truth[number])
            if apart.within(allowed := operator_tolerance(own, result.dtype)):
                continue
            noise = measure_noise(partial(self._once_more, func, given, number), {"": result}, {"": right})[""]
            if apart.within(allowed := allow_noise(allowed, noise, own, self._number_type)):
                continue
            kept = given if len(self.found) < MOST_KEPT else None
            self.found.append(
                OperatorFinding(str(func), self._trace.current, self._direction, self._calls, apart, allowed, kept)
            )
            return


def compares(func: Any, given: Any, device: torch.device) -> bool:
    """Whether an operator computes numbers on the device, that do not depend on chance."""
    name = func.__name__.partition(".")[0]
    if name in NO_VALUES or torch.Tag.nondeterministic_seeded in func.tags or func.is_view:
        return False
    tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor)]
    return any(tensor.device == device and tensor.is_floating_point() for tensor in tensors)


def _results(func: Any, given: Any, returned: Any) -> list[Tensor]:
    """The floating-point tensors that an operator returned or wrote into, each once."""
    args, kwargs = given
    written = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name, args[number] if number < len(args) else None)
            written += [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
    fresh = [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, Tensor)]
    everything = {id(tensor): tensor for tensor in (*written, *fresh) if tensor.is_floating_point()}
    return list(everything.values())


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _times(value: float, bound: float) -> float:
    return 0.0 if value <= bound else float("inf") if bound == 0 else value / bound
