"""The model section of a recipe whose model is a torch module of the user's own."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from paddock.models.config import BEGIN, FINISH, ModelConfig, SampleShape, UnitCost

OWN = "own"
"""The only unit."""


class OwnConfig(ModelConfig):
    """A module, by the place where every process finds what makes it."""

    has_stages: ClassVar[bool] = False
    family: Literal["own"] = "own"
    """The model family."""
    module: str
    """What a Python program gave to a Trainer: package.module:name of a function without arguments, or of a class, that
    makes the torch module; program:NAME is an object. Nothing else can use it: a recipe imports no code."""
    parameters: int = Field(0, ge=0)
    """How many numbers it learns, to be shown; a Trainer counts them."""
    seed: int = Field(0, ge=0)
    """What torch's generator is set to before the module is made, so that all processes begin with the same weights."""

    def units(self, shape: SampleShape, *, sequence: bool = False, recompute: bool = False) -> list[UnitCost]:
        """What it computes is not known: utilisation is not shown, and no stages are balanced."""
        return [UnitCost(BEGIN, 0, 0.0), UnitCost(OWN, self.parameters, 0.0), UnitCost(FINISH, 0, 0.0)]

    def task(self) -> str:
        return "own_loss"
