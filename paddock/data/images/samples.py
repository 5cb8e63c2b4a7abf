"""Image samples by their number: training without end, in a new order every epoch, and evaluation, each once.

A training sample is a function of (seed, number) and of nothing else: which image, which part of it, which colours,
which partner. Neither the processes that read nor those that train change it. Where the recipe says so, images that
cannot be read are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

from paddock.data.images.config import ImageData
from paddock.data.images.decode import Pixels, decode
from paddock.data.images.files import ImageFiles
from paddock.data.images.transforms import draw_mix, evaluation_transform, partner_of, training_transform
from paddock.data.loading.sampler import Shuffle
from paddock.errors import DataError
from paddock.models.config import IGNORED

Sample = dict[str, Any]

AUGMENT, MIX = 0, 1
"""What random numbers are for: each has its own."""
MOST_IN_A_ROW = 100
"""Images that are left out before it is an error after all: then it is not about single images."""


class AugmentedImage(NamedTuple):
    """What training sees of an image."""

    pixels: Pixels
    label: int
    skipped: tuple[int, ...] = ()
    """The numbers of images that could not be read, and in whose place this one is."""


class Images(Protocol):
    """Images as a model sees them, each with its class."""

    def __len__(self) -> int: ...

    def training(self, index: int, random: Generator) -> AugmentedImage:
        """An image, varied as `random` says."""

    def evaluation(self, index: int) -> tuple[Pixels, int]:
        """An image as it is; IGNORED for its class where it does not count."""


class TrainingImages:
    """An endless sequence of training samples."""

    def __init__(self, images: Images, data: ImageData, seed: int) -> None:
        self._images, self._data, self._seed = images, data, seed
        self._order: tuple[int, Shuffle] | None = None
        self._pair: dict[int, AugmentedImage] = {}

    @property
    def samples_per_epoch(self) -> float:
        return len(self._images)

    def __getitem__(self, index: int) -> Sample:
        if not self._data.mixes:
            image = self._augmented(index)
            return {"image": image.pixels, "label": image.label, "skipped": image.skipped}
        numbers = (index, partner_of(index))
        self._pair = {number: self._pair.get(number) or self._augmented(number) for number in numbers}
        image, other = (self._pair[number] for number in numbers)
        mix = draw_mix(self._data, self._random(MIX, index // 2))
        mixed = mix.apply(image.pixels, other.pixels)
        return {
            "image": mixed,
            "label": image.label,
            "other": other.label,
            "share": mix.share,
            "skipped": image.skipped,
        }

    def _augmented(self, index: int) -> AugmentedImage:
        epoch, place = divmod(index, len(self._images))
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, Shuffle(len(self._images), self._seed, epoch)
        return self._images.training(self._order[1][place], self._random(AUGMENT, index))

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


class StoredImages:
    """The images of some files. `numbers` are the model's class numbers of the files' own."""

    def __init__(self, files: ImageFiles, numbers: NDArray[np.int64], data: ImageData) -> None:
        self._files, self._numbers, self._data = files, numbers, data
        self._told: set[int] = set()

    def __len__(self) -> int:
        return len(self._files)

    def training(self, index: int, random: Generator) -> AugmentedImage:
        """An image, or the next one that can be read, with its own class: all other samples stay as they are."""
        skipped: list[int] = []
        for later in range(MOST_IN_A_ROW):
            taken = (index + later) % len(self)
            pixels = self._read(taken, self._data.least_side)
            if pixels is not None:
                return AugmentedImage(
                    training_transform(pixels, self._data, random), self._label(taken), tuple(skipped)
                )
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
        return evaluation_transform(pixels, self._data), self._label(index)

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
