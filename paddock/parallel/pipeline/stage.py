"""A pipeline stage: a range of a model's units, with its beginning before the first and its end behind the last.

One class serves every model, and without a pipeline it holds the whole one. What goes from stage to stage, and which
parameters a stage needs, is found by running the units on the meta device, which computes shapes and types only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paddock.parallel.config import RecomputeMode
from paddock.parallel.pipeline.schedules import BEGIN, FINISH
from paddock.parallel.recompute import recomputed

Batch = Mapping[str, Tensor]


class UnitModel(Protocol):
    """What a stage asks of a model (`models/model.py`)."""

    derived: tuple[str, ...]

    def begin(self, batch: Batch, *cache: Any) -> dict[str, Tensor]: ...

    def units(self) -> list[str]: ...

    def run(self, unit: str, carry: dict[str, Tensor], batch: Batch, *cache: Any) -> dict[str, Tensor]: ...

    def finish(self, carry: dict[str, Tensor], batch: Batch, *cache: Any) -> Tensor: ...


@dataclass(frozen=True)
class TensorSpec:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, device: torch.device | str) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=device)

    def cut(self, parts: int) -> TensorSpec:
        """One of so many equal parts along the second dimension."""
        first, second, *others = self.shape
        assert second % parts == 0, f"{parts} processes cannot share a sequence of {second}"
        return TensorSpec((first, second // parts, *others), self.dtype)


CarrySpec = dict[str, TensorSpec]


class Blueprint:
    """A whole model without memory: what its units hand on, and which parameters each uses."""

    def __init__(self, model: nn.Module) -> None:
        self._model: Any = model.eval()
        self.derives = bool(self._model.derived)
        """Whether stages make something for themselves, which their units share."""
        self._seen: dict[tuple[Any, ...], tuple[dict[str, CarrySpec], dict[str, set[str]]]] = {}

    def carries(self, batch: Batch, sequence_parts: int = 1) -> dict[str, CarrySpec]:
        """What the beginning and each unit hands on of such a batch, on one process: `sequence_parts` say over how many
        activations are cut along their second dimension."""
        whole, _ = self._look(batch, finish=False)
        if sequence_parts == 1:
            return whole
        return {unit: {name: spec.cut(sequence_parts) for name, spec in carry.items()} for unit, carry in whole.items()}

    def parameters(self, batch: Batch) -> dict[str, set[str]]:
        """The names of the parameters that the beginning, each unit and the end use."""
        return self._look(batch, finish=True)[1]

    def _look(self, batch: Batch, finish: bool) -> tuple[dict[str, CarrySpec], dict[str, set[str]]]:
        key = (finish, *((name, tensor.shape, tensor.dtype) for name, tensor in batch.items()))
        if key not in self._seen:
            model, given = self._model, {name: tensor.to("meta") for name, tensor in batch.items()}
            carries: dict[str, CarrySpec] = {}
            used: dict[str, set[str]] = {}
            with torch.no_grad(), _UsedParameters(model) as watch:
                carry = self._sent(model.begin(given))
                carries[BEGIN], used[BEGIN] = _spec(carry), watch.take()
                for unit in model.units():
                    carry = self._sent(model.run(unit, carry, given))
                    carries[unit], used[unit] = _spec(carry), watch.take()
                if finish:
                    model.finish(carry, given)
                    used[FINISH] = watch.take()
            # What nothing uses is saved all the same: somebody must have it.
            used[BEGIN] |= {name for name, _ in model.named_parameters()} - set().union(*used.values())
            self._seen[key] = carries, used
        return self._seen[key]

    def _sent(self, carry: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the next stage gets, were this the last unit of one."""
        return {name: tensor for name, tensor in carry.items() if name not in self._model.derived}


class _UsedParameters(TorchFunctionMode):
    """Hears of every parameter of a model that a function of torch is given."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._used: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note((*args, *kwargs.values()) if kwargs else args)
        return func(*args, **(kwargs or {}))

    def _note(self, values: Any) -> None:
        for value in values:
            if isinstance(value, list | tuple):  # what is joined or stacked
                self._note(value)
            elif id(value) in self._names:
                self._used.add(self._names[id(value)])

    def take(self) -> set[str]:
        """Those since the last time."""
        used, self._used = self._used, set()
        return used


class Stage(nn.Module):
    """Consecutive units of a model. Takes the carry of the stage before in the order of its names, and the batch."""

    def __init__(
        self,
        model: nn.Module,
        units: Sequence[str],
        takes: Sequence[str] | None,
        gives: Mapping[str, TensorSpec] | None,
        autocast: AbstractContextManager[Any] | None = None,
        recompute: RecomputeMode = "none",
    ) -> None:
        """`takes` names what comes from the stage before; None is the first stage, which takes the batch alone. `gives`
        is what goes to the next, in types that both know; None is the last stage, which gives the model's loss or
        outputs. `recompute` is what units compute again in the backward pass."""
        super().__init__()
        self.model = model
        self._units, self._takes, self._gives = list(units), takes, gives
        run = model.run
        self._runs = {unit: recomputed(recompute, run, model.get_submodule(unit)) for unit in units}  # type: ignore[arg-type]
        # Entered here, around the forward pass alone: a schedule goes backward between two forward passes.
        self._autocast = autocast or nullcontext()

    def forward(self, *carried: Tensor, batch: Batch) -> Tensor | tuple[Tensor, ...]:
        with self._autocast:
            found = self.advance(None if self._takes is None else dict(zip(self._takes, carried, strict=True)), batch)
        if isinstance(found, Tensor):
            return found
        assert self._gives is not None
        return tuple(_own(found[name].to(spec.dtype), carried) for name, spec in self._gives.items())

    def advance(self, carry: dict[str, Tensor] | None, batch: Batch, *cache: Any) -> dict[str, Tensor] | Tensor:
        """What the stage makes of the carry, which is None before the first one: the next carry, or behind the last
        unit the model's loss or outputs. A cache holds what units said of earlier tokens."""
        model: UnitModel = self.model  # type: ignore[assignment]
        if carry is None:
            carry = model.begin(batch, *cache)
        for unit in self._units:
            carry = self._runs[unit](unit, carry, batch, *cache)
        return model.finish(carry, batch, *cache) if self._gives is None else carry

    def unit_modules(self) -> list[nn.Module]:
        """What is compiled, recomputed and gathered as one."""
        return [self.model.get_submodule(unit) for unit in self._units]


def prune(model: nn.Module, needed: set[str]) -> None:
    """Take out of a model every parameter that is not needed, with the modules that have no other."""
    for name, _ in list(model.named_parameters(recurse=False)):
        if name not in needed:
            setattr(model, name, None)
    for name, child in list(model.named_children()):
        below = {inner for inner, _ in child.named_parameters()}
        kept = {inner for inner in below if f"{name}.{inner}" in needed}
        if below and not kept:
            delattr(model, name)
        elif kept != below:
            prune(child, kept)


def _spec(carry: Mapping[str, Tensor]) -> CarrySpec:
    return {name: TensorSpec(tuple(tensor.shape), tensor.dtype) for name, tensor in carry.items()}


def _own(tensor: Tensor, carried: Sequence[Tensor]) -> Tensor:
    """What a stage hands on, in memory of its own: schedules that go backward in two passes detach it in place, which
    a view does not let them, and what only passes through must not be the very tensor that came in."""
    passes_through = any(tensor is one for one in carried)
    return tensor.clone() if passes_through or tensor._is_view() else tensor
