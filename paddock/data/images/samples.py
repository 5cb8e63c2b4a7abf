"""Image samples by their number: training without end, in a new order every epoch, and evaluation, each once.

A training sample is a function of (seed, number) and of nothing else: which image, which part of it, which colours,
which partner. Neither the processes that read nor those that train change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator, Philox

from paddock.data.images.config import ImageData
from paddock.data.images.decode import Pixels
from paddock.data.images.mixing import draw_blend, partner_of
from paddock.data.shuffle import Shuffle

Sample = dict[str, Any]

VIEW, BLEND = 0, 1
"""What random numbers are for: each has its own."""


class View(NamedTuple):
    """What training sees of an image."""

    pixels: Pixels
    label: int
    skipped: tuple[int, ...] = ()
    """The numbers of images that could not be read, and in whose place this one is."""


class Images(Protocol):
    """Images as a model sees them, each with its class."""

    def __len__(self) -> int: ...

    def training(self, index: int, random: Generator) -> View:
        """An image, varied as `random` says."""

    def evaluation(self, index: int) -> tuple[Pixels, int]:
        """An image as it is; IGNORED for its class where it does not count."""


class TrainingImages:
    """An endless sequence of training samples."""

    def __init__(self, images: Images, data: ImageData, seed: int) -> None:
        self._images, self._data, self._seed = images, data, seed
        self._order: tuple[int, Shuffle] | None = None
        self._pair: dict[int, View] = {}

    @property
    def samples_per_epoch(self) -> float:
        return len(self._images)

    def __getitem__(self, index: int) -> Sample:
        if not self._data.mixes:
            view = self._view(index)
            return {"image": view.pixels, "label": view.label, "skipped": view.skipped}
        numbers = (index, partner_of(index))
        self._pair = {number: self._pair.get(number) or self._view(number) for number in numbers}
        view, other = (self._pair[number] for number in numbers)
        blend = draw_blend(self._data, self._random(BLEND, index // 2))
        mixed = blend.apply(view.pixels, other.pixels)
        return {
            "image": mixed,
            "label": view.label,
            "other": other.label,
            "share": blend.share,
            "skipped": view.skipped,
        }

    def _view(self, index: int) -> View:
        epoch, place = divmod(index, len(self._images))
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, Shuffle(len(self._images), self._seed, epoch)
        return self._images.training(self._order[1][place], self._random(VIEW, index))

    def _random(self, purpose: int, number: int) -> Generator:
        return random_numbers(self._seed, purpose, number)


class EvaluationImages(Sequence[Sample]):
    """Every image once, in an order that mixes the classes: the first ones are a fair part of them all."""

    def __init__(self, images: Images) -> None:
        self._images, self._order = images, Shuffle(len(images), 0)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        pixels, label = self._images.evaluation(self._order[index])
        return {"image": pixels, "label": label}


def random_numbers(seed: int, purpose: int, number: int) -> Generator:
    """A generator of its own for everything that needs one, made in a moment: Philox takes a key as it is."""
    return Generator(Philox(key=np.array([seed % 2**64, (purpose << 60) + number], dtype=np.uint64)))
