"""Which parameters a stage keeps of a model, whatever way it uses them."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from paddock.models.layers.initialization import Initial
from paddock.models.model import Batch, Carry, Model
from paddock.parallel.pipeline.schedules import BEGIN, FINISH
from paddock.parallel.pipeline.stage import Blueprint, prune


class Odd(Model):
    """Parameters of its own, in lists, by keyword, in two units, and one that nothing uses."""

    inputs: ClassVar = ("x",)

    def __init__(self) -> None:
        super().__init__()
        self.mark = nn.Parameter(torch.zeros(1, 4))
        self.shift = nn.Parameter(torch.zeros(4))
        self.idle = nn.Parameter(torch.zeros(3))
        self.pair = nn.ParameterDict({"left": torch.zeros(4), "right": torch.zeros(4)})
        self.layers = nn.ModuleDict({str(index): nn.Linear(4, 4) for index in range(2)})

    def begin(self, batch: Batch, cache: Any = None) -> Carry:
        return {"x": torch.cat([self.mark, batch["x"]])}

    def units(self) -> list[str]:
        return [f"layers.{name}" for name in self.layers]

    def run(self, unit: str, carry: Carry, batch: Batch, cache: Any = None) -> Carry:
        side = self.pair["left" if unit == "layers.0" else "right"]
        return {"x": torch.add(self.get_submodule(unit)(carry["x"]) + side, other=self.shift)}

    def finish(self, carry: Carry, batch: Batch, cache: Any = None) -> Tensor:
        return torch.stack([carry["x"].mean(0), self.shift]).sum()

    def initial(self, name: str) -> Initial:
        return Initial()


def test_used_parameters_are_found_however_they_are_given() -> None:
    with torch.device("meta"):
        used = Blueprint(Odd()).parameters({"x": torch.empty(2, 4)})
    assert used == {
        BEGIN: {"mark", "idle"},
        "layers.0": {"layers.0.weight", "layers.0.bias", "pair.left", "shift"},
        "layers.1": {"layers.1.weight", "layers.1.bias", "pair.right", "shift"},
        FINISH: {"shift"},
    }


def test_nothing_else_is_kept() -> None:
    model = Odd()
    needed = {"layers.1.weight", "layers.1.bias", "pair.right", "shift"}
    prune(model, needed)
    assert {name for name, _ in model.named_parameters()} == needed == set(model.state_dict())
    assert model.units() == ["layers.1"]
