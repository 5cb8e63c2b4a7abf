"""The data section of a recipe that trains on the user's own dataset."""

from __future__ import annotations

from typing import Literal

from paddock.data.config import DataConfig
from paddock.models.config import SampleShape
from paddock.plugins import PROGRAM


class OwnData(DataConfig):
    """Datasets, by the places where every process finds them."""

    source: Literal["own"] = "own"
    """own: a dataset of yours, which has a length and gives samples by their number: tensors, tuples or dictionaries of
    tensors and numbers."""
    train: str | None = None
    """What a Python program gave to a Trainer: package.module:name of a dataset, or of a function without arguments
    that makes one; program:NAME is an object. Nothing else can use it: a recipe imports no code."""
    validation: str | None = None
    """The same, of what is evaluated on."""
    shuffle: bool = True
    """Take the training samples in another order every epoch; else in their own."""

    def sample_shape(self) -> SampleShape:
        return SampleShape(1)

    def describe(self) -> str:
        given = [place for place in (self.train, self.validation) if place is not None]
        return ", ".join(
            f"{place.removeprefix(PROGRAM)} of the program" if place.startswith(PROGRAM) else place for place in given
        )

    def describe_sample(self) -> str:
        return "samples of its dataset"

    def lacks_validation(self) -> str | None:
        return "data.validation is not set" if self.validation is None else None
