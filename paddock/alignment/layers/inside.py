"""Inside a part that went wrong: what each of its modules makes, on the device beside the reference.

The part is given the reference's inputs and gradients; from there on each side goes by its own numbers. So the first
module that differs, in the order in which they run, is where an error begins, and those behind it have it from there.
"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from paddock.alignment.layers.closeness import tolerance
from paddock.alignment.layers.comparison import Compared, Direction, Moved, Side, compute_part, distances
from paddock.alignment.layers.modules import tensors_of
from paddock.alignment.layers.noise import allow_noise, measure_noise
from paddock.alignment.layers.parts import PartRunner, Reference

OUTPUT, GRADIENT = "output", "gradient of the output"


def compare_modules(part: str, reference: Reference, device: PartRunner, number_type: torch.dtype) -> list[Compared]:
    """Every module of a part, by its name: its outputs, in the order in which they are made, and their gradients."""
    model = reference.runner.model
    expected = _heard(reference.runner, model, reference, part)
    moved = distances(_heard(Moved(reference.rounding, number_type), model, reference, part), expected)
    again = partial(_heard, device, device.model, reference, part)
    computed = again()
    found, noise = distances(computed, expected), measure_noise(again, computed, expected)
    compared = []
    for key in expected:
        module, _, tensor = key.partition(": ")
        allowed = tolerance(moved[key], number_type)
        if key in noise:
            allowed = allow_noise(allowed, noise[key], moved[key], number_type)
        direction: Direction = "backward" if tensor.startswith(GRADIENT) else "forward"
        compared.append(Compared(module, direction, tensor, found[key], allowed, noise.get(key)))
    return compared


def _heard(side: Side, model: nn.Module, reference: Reference, part: str) -> dict[str, Tensor]:
    with _Listener(model, part) as listener:
        compute_part(side, reference, part)
    return listener.found


class _Listener:
    """Keeps what modules make, and the gradients of that, while a part is computed."""

    def __init__(self, model: nn.Module, part: str) -> None:
        self._model, self._part = model, part
        self._handles: list[RemovableHandle] = []
        self.found: dict[str, Tensor] = {}
        """By `MODULE: output`; of a further tensor or call with a number."""

    def __enter__(self) -> _Listener:
        for name, module in self._model.named_modules():
            if name not in ("", self._part):  # whose outputs are the part's
                self._handles.append(module.register_forward_hook(partial(self._hear, name)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def _hear(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        given = {id(tensor) for tensor in tensors_of(args)}
        for tensor in tensors_of(output):
            if id(tensor) in given:  # dropout of nothing computes nothing
                continue
            number = sum(key.startswith(f"{name}: {OUTPUT}") for key in self.found) + 1
            end = "" if number == 1 else f" {number}"
            self.found[f"{name}: {OUTPUT}{end}"] = tensor
            if tensor.requires_grad:
                self._handles.append(tensor.register_hook(partial(self._keep, f"{name}: {GRADIENT}{end}")))

    def _keep(self, key: str, gradient: Tensor) -> None:
        self.found[key] = gradient
