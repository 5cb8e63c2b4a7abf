"""Images from files, as samples need them; where the recipe says so, those that cannot be read are left out."""

from __future__ import annotations

import sys

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from paddock.data.images.config import ImageData
from paddock.data.images.decode import Pixels, decode
from paddock.data.images.files import ImageFiles
from paddock.data.images.samples import View
from paddock.data.images.views import evaluation_view, training_view
from paddock.errors import DataError
from paddock.models.labels import IGNORED

MOST_IN_A_ROW = 100
"""Images that are left out before it is an error after all: then it is not about single images."""


class StoredImages:
    """The images of some files. `numbers` are the model's class numbers of the files' own."""

    def __init__(self, files: ImageFiles, numbers: NDArray[np.int64], data: ImageData) -> None:
        self._files, self._numbers, self._data = files, numbers, data
        self._told: set[int] = set()

    def __len__(self) -> int:
        return len(self._files)

    def training(self, index: int, random: Generator) -> View:
        """An image, or the next one that can be read, with its own class: all other samples stay as they are."""
        skipped: list[int] = []
        for later in range(MOST_IN_A_ROW):
            taken = (index + later) % len(self)
            pixels = self._read(taken, self._data.least_side)
            if pixels is not None:
                return View(training_view(pixels, self._data, random), self._label(taken), tuple(skipped))
            skipped.append(taken)
        raise DataError(
            f"{MOST_IN_A_ROW} images in a row cannot be read",
            why=f"the first is {self._files.name(index)}",
            fix="see the messages above, or set --data.on-error stop to be told about the first only",
        )

    def evaluation(self, index: int) -> tuple[Pixels, int]:
        pixels = self._read(index)
        if pixels is None:
            return np.zeros((self._data.image_size, self._data.image_size, 3), np.uint8), IGNORED
        return evaluation_view(pixels, self._data), self._label(index)

    def _label(self, index: int) -> int:
        return int(self._numbers[self._files.label(index)])

    def _read(self, index: int, least: int | None = None) -> Pixels | None:
        """An image's pixels, perhaps of a smaller size; None if it is to be left out."""
        name = self._files.name(index)
        try:
            try:
                content = self._files.read(index)
            except OSError as error:
                raise DataError(f"{name} cannot be read", why=error.strerror or str(error)) from error
            return decode(content, name, least)
        except DataError as error:
            if self._data.on_error == "stop":
                raise
            if index not in self._told:
                self._told.add(index)
                print(f"skipped {name}: {error.why}", file=sys.stderr, flush=True)
            return None
