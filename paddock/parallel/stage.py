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

from paddock.parallel.config import RecomputeMode
from paddock.parallel.recompute import recomputed

BEGIN, FINISH = "begin", "finish"
Batch = Mapping[str, Tensor]


class UnitModel(Protocol):
    """What a stage asks of a model (`models/model.py`)."""

    def begin(self, batch: Batch) -> dict[str, Tensor]: ...

    def units(self) -> list[str]: ...

    def run(self, unit: str, carry: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]: ...

    def finish(self, carry: dict[str, Tensor], batch: Batch) -> Tensor: ...


@dataclass(frozen=True)
class TensorSpec:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, device: torch.device | str) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=device)


Carry = dict[str, TensorSpec]


class Blueprint:
    """A whole model without memory: what its units hand on, and which parameters each uses."""

    def __init__(self, model: nn.Module, sequence_parts: int = 1) -> None:
        """`sequence_parts`: over how many processes activations between units are cut along their second dimension."""
        self._model: Any = model.eval()
        self._parts = sequence_parts
        self._known: dict[tuple[Any, ...], dict[str, Carry]] = {}

    def carries(self, batch: Batch) -> dict[str, Carry]:
        """What the beginning and each unit hands on of such a batch, on one process."""
        key = tuple((name, tensor.shape, tensor.dtype) for name, tensor in batch.items())
        if key not in self._known:
            model, given, found = self._model, _on_meta(batch), {}
            with torch.no_grad():
                carry = model.begin(given)
                found[BEGIN] = self._spec(carry)
                for unit in model.units():
                    carry = model.run(unit, carry, given)
                    found[unit] = self._spec(carry)
            self._known[key] = found
        return self._known[key]

    def parameters(self, batch: Batch) -> dict[str, set[str]]:
        """The names of the parameters that the beginning, each unit and the end use: those that get a gradient."""
        model, given = self._model, _on_meta(batch)
        named = dict(model.named_parameters())
        carry = model.begin(given)
        found = {BEGIN: _used(carry, named)}
        for unit in model.units():
            carry = model.run(unit, _cut_off(carry), given)
            found[unit] = _used(carry, named)
        return {**found, FINISH: _used({"loss": model.finish(_cut_off(carry), given)}, named)}

    def _spec(self, carry: Mapping[str, Tensor]) -> Carry:
        return {name: TensorSpec(self._cut(tensor.shape), tensor.dtype) for name, tensor in carry.items()}

    def _cut(self, shape: Sequence[int]) -> tuple[int, ...]:
        batch, time, *others = shape
        return (batch, time // self._parts, *others) if self._parts > 1 else tuple(shape)


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
        model: UnitModel = self.model  # type: ignore[assignment]
        with self._autocast:
            carry = model.begin(batch) if self._takes is None else dict(zip(self._takes, carried, strict=True))
            for unit in self._units:
                carry = self._runs[unit](unit, carry, batch)
            if self._gives is None:
                return model.finish(carry, batch)
        return tuple(_own(carry[name].to(spec.dtype), carried) for name, spec in self._gives.items())

    def unit_modules(self) -> list[nn.Module]:
        """What is compiled, recomputed and gathered as one."""
        return [self.model.get_submodule(unit) for unit in self._units]


def prune(model: nn.Module, needed: set[str]) -> None:
    """Take out of a model every module that has parameters of its own, none of which is needed."""
    for name, child in list(model.named_children()):
        below = {inner for inner, _ in child.named_parameters()}
        kept = {inner for inner in below if f"{name}.{inner}" in needed}
        if below and not kept:
            delattr(model, name)
        elif kept != below:
            prune(child, kept)


def _on_meta(batch: Batch) -> dict[str, Tensor]:
    return {name: tensor.to("meta") for name, tensor in batch.items()}


def _cut_off(carry: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().requires_grad_() for name, tensor in carry.items()}


def _used(outputs: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]) -> set[str]:
    differentiable = [tensor for tensor in outputs.values() if tensor.requires_grad]
    gradients = torch.autograd.grad(
        differentiable, list(parameters.values()), [torch.ones_like(one) for one in differentiable], allow_unused=True
    )
    return {name for name, gradient in zip(parameters, gradients, strict=True) if gradient is not None}


def _own(tensor: Tensor, carried: Sequence[Tensor]) -> Tensor:
    """What a stage hands on, in memory of its own: schedules that go backward in two passes detach it in place, which
    a view does not let them, and what only passes through must not be the very tensor that came in."""
    passes_through = any(tensor is one for one in carried)
    return tensor.clone() if passes_through or tensor._is_view() else tensor
