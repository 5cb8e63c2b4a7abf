"""A model and its optimizer as one flat dictionary of tensors, by name: nothing in it depends on a layout."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adafactor, Adam, Optimizer

from paddock.checkpoint.shards.blocks import damaged
from paddock.parallel.placement import mean_like

MODEL = "model."
OPTIMIZER = "optimizer."
EMA = "average."
"""Of the weights over time, where a run keeps one: what to use of a trained model."""
MEANS = {"row_var": -1, "col_var": -2}
"""State of Adafactor that is a mean over a dimension of its weight: which."""

Saved = Mapping[str, tuple[torch.Size, torch.dtype]]
"""The shapes and types of what a checkpoint holds, by name."""


def tensors_of(models: Sequence[nn.Module], optimizer: Optimizer | None, prefix: str = MODEL) -> dict[str, Tensor]:
    """`model.<name>` for parameters and buffers, `optimizer.<kind>.<name>` for the optimizer's state."""
    tensors = {name: tensor for model in models for name, tensor in state_of(model, prefix).items()}
    if optimizer is not None:
        for name, parameter in _named(models).items():
            for kind, value in optimizer.state.get(parameter, {}).items():
                tensors[f"{OPTIMIZER}{kind}.{name}"] = value
    return tensors


def state_of(model: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Parameters and buffers under their names in a checkpoint. A weight that has two names is there once; what is
    counted has no average, and stands where the model's own is."""
    first = {name for name, _ in model.named_parameters()}
    again = {name for name, _ in model.named_parameters(remove_duplicate=False)} - first
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in again}
    return {(prefix if tensor.is_floating_point() else MODEL) + name: tensor for name, tensor in state.items()}


def prefix_of_weights(saved: Collection[str]) -> str:
    """Under which of its names a checkpoint has the weights of a trained model."""
    return EMA if any(name.startswith(EMA) for name in saved) else MODEL


def named_parameters(models: Sequence[nn.Module]) -> list[tuple[str, Tensor]]:
    """The parameters of all stages that are here, with their names in the whole model."""
    return [pair for model in models for pair in model.named_parameters()]


def sync_duplicates(named: Sequence[tuple[str, Tensor]]) -> None:
    """Make all tensors of a name the same as the last, which is the one that `dict(named)` has and that was loaded.

    A folded pipeline has its first and its last stage in one process, each with a copy of the tied embedding.
    """
    loaded = dict(named)
    with torch.no_grad():
        for name, tensor in named:
            if tensor is not loaded[name]:
                tensor.copy_(loaded[name])


def check_optimizer_state(path: Path, saved: Saved, optimizer: Optimizer) -> None:
    """An error, if what a checkpoint has of an optimizer's state is not whole: for every weight that has some, all
    that the optimizer keeps, in its weight's shape, as a mean over it or as one number. The same on all processes."""
    kinds: dict[str, set[str]] = {}
    shapes = {name: shape for name, (shape, _) in saved.items()}
    for key in saved:
        if key.startswith(OPTIMIZER):
            kind, _, name = key.removeprefix(OPTIMIZER).partition(".")
            kinds.setdefault(name, set()).add(kind)
            weight = shapes.get(MODEL + name)
            if weight is None or shapes[key] not in ((), _state_shape(kind, weight)):
                raise damaged(path, f"{key} {list(shapes[key])} is the state of no weight")
    for name, found in kinds.items():
        needed = _kinds_of(optimizer, len(shapes[MODEL + name]))
        if needed is not None and found != needed:
            raise damaged(path, f"of {name} it has {', '.join(sorted(found))}, and needs {', '.join(sorted(needed))}")


def empty_optimizer_state(saved: Saved, models: Sequence[nn.Module], optimizer: Optimizer) -> dict[str, Tensor]:
    """Empty tensors for the optimizer state that a checkpoint holds of these models' parameters."""
    parameters, beside = _named(models), _counted_beside(optimizer)
    room = {}
    for key, (shape, dtype) in saved.items():
        if key.startswith(OPTIMIZER):
            kind, _, name = key.removeprefix(OPTIMIZER).partition(".")
            if name in parameters:
                parameter = parameters[name]
                if kind in MEANS:
                    room[key] = mean_like(parameter.data, MEANS[kind]).to(dtype)
                elif shape == parameter.shape:
                    room[key] = torch.empty_like(parameter.data, dtype=dtype)
                else:  # a step counter
                    device = parameter.device if parameter in beside else None
                    room[key] = torch.empty(shape, dtype=dtype, device=device)
    return room


def load_optimizer_state(tensors: Mapping[str, Tensor], models: Sequence[nn.Module], optimizer: Optimizer) -> None:
    """Install loaded state in an optimizer. A weight that is here twice gets its state twice."""
    holders: dict[str, list[nn.Parameter]] = {}
    for model in models:
        for name, parameter in model.named_parameters():
            holders.setdefault(name, []).append(parameter)
    optimizer.state.clear()
    for key, tensor in tensors.items():
        kind, name = key.removeprefix(OPTIMIZER).split(".", 1)
        for number, parameter in enumerate(holders[name]):
            optimizer.state[parameter][kind] = tensor if number == 0 else tensor.clone()


def _kinds_of(optimizer: Optimizer, dims: int) -> set[str] | None:
    """What an optimizer keeps of a weight, if that is known."""
    if isinstance(optimizer, Adafactor):
        return {"step", "row_var", "col_var"} if dims > 1 else {"step", "variance"}
    if isinstance(optimizer, Adam):
        return {"step", "exp_avg", "exp_avg_sq"}
    return {"momentum_buffer"} if isinstance(optimizer, SGD) else None


def _state_shape(kind: str, weight: torch.Size) -> tuple[int, ...]:
    """The shape of what is kept of a weight, where it is no single number."""
    place = len(weight) + MEANS[kind] if kind in MEANS else None
    return tuple(1 if index == place else size for index, size in enumerate(weight))


def _counted_beside(optimizer: Optimizer) -> set[nn.Parameter]:
    """Parameters whose steps torch counts on their own device, where fused kernels look; the host counts the others."""
    groups = [group for group in optimizer.param_groups if group.get("fused") or group.get("capturable")]
    return {parameter for group in groups for parameter in group["params"]}


def _named(models: Sequence[nn.Module]) -> dict[str, nn.Parameter]:
    return {name: parameter for model in models for name, parameter in model.named_parameters()}
