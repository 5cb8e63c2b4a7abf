"""Adafactor for parameters that lie over several processes.

The arithmetic is torch's. Its own step fails where a parameter is cut over processes (norms of parts cannot be squared
in place), and reads three numbers of every parameter back from the device. Here the parts' sums are added up over the
processes, all parameters at once, in three rounds, and everything stays on the device.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from paddock.models.layers.basic import widest
from paddock.parallel.gradient_norm import PIECE, sum_of_squares
from paddock.parallel.placement import local, mean_like

Groups = tuple[dist.ProcessGroup, ...]
Partial = tuple[Tensor, Groups]
"""A sum over what is here, and the processes over which it becomes the whole."""
Update = Generator[list[Partial], list[Tensor], None]
"""The update of a parameter, which asks for sums over processes on its way."""


class Adafactor(torch.optim.Adafactor):
    """torch's Adafactor, of whole tensors and of DTensors. A step uses gradients up: they become the updates."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None
        updates = [
            _update(parameter, self._state_of(parameter), group)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        wanted = [next(update) for update in updates]
        while updates:
            found = iter(_sum_together([partial for partials in wanted for partial in partials]))
            answers = [[next(found) for _ in partials] for partials in wanted]
            going_on = [(update, _send(update, sums)) for update, sums in zip(updates, answers, strict=True)]
            updates = [update for update, partials in going_on if partials is not None]
            wanted = [partials for _, partials in going_on if partials is not None]

    def _state_of(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Mean squares of a matrix's gradient over rows and over columns, of a vector's number by number."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            if parameter.dim() > 1:
                state["row_var"], state["col_var"] = (mean_like(parameter.data, dim).zero_() for dim in (-1, -2))
            else:
                state["variance"] = torch.zeros_like(parameter)
        return state


def _update(parameter: nn.Parameter, state: Mapping[str, Tensor], group: Mapping[str, Any]) -> Update:
    assert parameter.grad is not None
    weight, gradient = local(parameter.data), local(parameter.grad)
    over = _cuts(parameter.data)
    everyone = _groups(over, range(parameter.dim()))
    eps1, eps2 = group["eps"]
    eps1 = torch.finfo(weight.dtype).eps if eps1 is None else eps1
    state["step"].add_(1)
    step = float(state["step"])  # counted on the host
    share = step ** group["beta2_decay"]
    if parameter.dim() > 1:
        yield from _divide_by_factors(parameter, gradient, state, over, share, eps1)
    else:
        variance = local(state["variance"]).lerp_(gradient * gradient, share)
        gradient.mul_(variance.clamp(min=eps1 * eps1).rsqrt_())
    squares = yield [(sum_of_squares([weight]), everyone), (sum_of_squares([gradient]), everyone)]
    scale, size = ((square / parameter.numel()).sqrt() for square in squares)
    rate = scale.clamp(min=eps2) * min(group["lr"], step**-0.5) / (size / group["d"]).clamp(min=1.0)
    if group["weight_decay"]:
        weight.mul_(1 - group["lr"] * group["weight_decay"])
    weight.addcmul_(gradient, rate.to(weight.dtype), value=-1)


def _divide_by_factors(
    parameter: nn.Parameter,
    gradient: Tensor,
    state: Mapping[str, Tensor],
    over: Mapping[int, list[dist.ProcessGroup]],
    share: float,
    eps1: float,
) -> Update:
    """Divide a gradient by the root of its mean square, which is the product of a row's and a column's."""
    rows, columns = parameter.dim() - 2, parameter.dim() - 1
    row_sums, column_sums = yield [
        (widest(torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)).square_(), _groups(over, [columns])),
        (_column_sums(gradient), _groups(over, [rows])),
    ]
    row_var, col_var = local(state["row_var"]), local(state["col_var"])
    row_var.lerp_((row_sums / parameter.shape[columns]).to(row_var.dtype), share)
    col_var.lerp_((column_sums / parameter.shape[rows]).to(col_var.dtype), share)
    (sums,) = yield [(widest(row_var).sum(-2, keepdim=True), _groups(over, [rows]))]
    mean = (sums / parameter.shape[rows]).clamp(min=eps1).to(gradient.dtype)
    for part, row_part in zip(gradient.split(PIECE, -2), row_var.split(PIECE, -2), strict=True):
        part.mul_((row_part @ col_var).div_(mean).clamp_(min=eps1 * eps1).rsqrt_())


def _column_sums(gradient: Tensor) -> Tensor:
    """Of squares, over the rows. In pieces: single precision loses digits over the rows of a large embedding."""
    norms = [torch.linalg.vector_norm(part, dim=-2, keepdim=True) for part in gradient.split(PIECE, -2)]
    return widest(torch.cat(norms, dim=-2)).square_().sum(-2, keepdim=True)


def _cuts(weight: Tensor) -> dict[int, list[dist.ProcessGroup]]:
    """The processes over which each dimension of a tensor is cut."""
    cuts: dict[int, list[dist.ProcessGroup]] = {}
    if isinstance(weight, DTensor):
        for axis, placement in enumerate(weight.placements):
            if not isinstance(placement, Replicate):
                cuts.setdefault(placement.dim, []).append(weight.device_mesh.get_group(axis))  # type: ignore[attr-defined]
    return cuts


def _groups(cuts: Mapping[int, list[dist.ProcessGroup]], dims: Iterable[int]) -> Groups:
    return tuple(group for dim in dims for group in cuts.get(dim, ()))


def _sum_together(partials: Sequence[Partial]) -> list[Tensor]:
    """The sums over all processes, with one message for each set of processes."""
    members: dict[Groups, list[int]] = {}
    for index, (_, groups) in enumerate(partials):
        members.setdefault(groups, []).append(index)
    totals = [tensor for tensor, _ in partials]
    for groups, indices in members.items():
        if not groups:
            continue
        flat = torch.cat([totals[index].reshape(-1) for index in indices])
        for group in groups:
            dist.all_reduce(flat, group=group)
        parts = flat.split([totals[index].numel() for index in indices])
        for index, part in zip(indices, parts, strict=True):
            totals[index] = part.view_as(totals[index])
    return totals


def _send(update: Update, sums: list[Tensor]) -> list[Partial] | None:
    """What an update asks for next; nothing, when it is done."""
    try:
        return update.send(sums)
    except StopIteration:
        return None
