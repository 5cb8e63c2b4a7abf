"""Images out of nothing: noise for trying a model, and shapes and textures that a small model can learn.

An image is a function of its number; training and evaluation see different ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from paddock.data.images.config import SHAPES, ImageData
from paddock.data.images.decode import Pixels
from paddock.data.images.samples import AugmentedImage, random_numbers
from paddock.data.images.transforms import augment

Plane = NDArray[np.float32]

TRAINING, EVALUATION = 2, 3
"""What random numbers are for, besides those of samples."""


class Noise:
    """Random pixels with random classes: nothing to learn."""

    def __init__(self, data: ImageData, classes: int, count: int) -> None:
        self._data, self._classes, self._count = data, classes, count

    def __len__(self) -> int:
        return self._count

    def training(self, index: int, random: Generator) -> AugmentedImage:
        pixels, label = self._draw(index, TRAINING)
        return AugmentedImage(augment(pixels, self._data, random), label)

    def evaluation(self, index: int) -> tuple[Pixels, int]:
        return self._draw(index, EVALUATION)

    def _draw(self, index: int, purpose: int) -> tuple[Pixels, int]:
        random, size = random_numbers(0, purpose, index), self._data.image_size
        label = int(random.integers(self._classes))
        return random.integers(0, 256, (size, size, 3), np.uint8), label


class Shapes:
    """A shape or a texture, somewhere, turned, in two colours, under noise."""

    def __init__(self, data: ImageData, count: int) -> None:
        self._data, self._count = data, count

    def __len__(self) -> int:
        return self._count

    def training(self, index: int, random: Generator) -> AugmentedImage:
        pixels, label = self._draw(index, TRAINING)
        return AugmentedImage(augment(pixels, self._data, random), label)

    def evaluation(self, index: int) -> tuple[Pixels, int]:
        return self._draw(index, EVALUATION)

    def _draw(self, index: int, purpose: int) -> tuple[Pixels, int]:
        random = random_numbers(0, purpose, index)
        return draw(SHAPES[index % len(SHAPES)], self._data.image_size, random), index % len(SHAPES)


def draw(shape: str, size: int, random: Generator) -> Pixels:
    """A picture of one shape or texture."""
    radius, angle = random.uniform(0.35, 0.6), random.uniform(0, 2 * math.pi)
    across, down = random.uniform(-0.35, 0.35, 2)
    steps = np.linspace(-1, 1, size, dtype=np.float32)
    x, y = steps[None, :] - np.float32(across), steps[:, None] - np.float32(down)
    turned_x = x * np.float32(math.cos(angle)) + y * np.float32(math.sin(angle))
    turned_y = y * np.float32(math.cos(angle)) - x * np.float32(math.sin(angle))
    distance = DISTANCES[shape](turned_x, turned_y, radius)
    inside = (np.float32(0.5) - distance * np.float32(size / 2)).clip(0, 1)[..., None]
    back, front = _two_colours(random)
    picture = back + (front - back) * inside
    picture += random.standard_normal((size, size, 1), dtype=np.float32) * np.float32(random.uniform(4, 20))
    return np.rint(picture.clip(0, 255)).astype(np.uint8)


def _two_colours(random: Generator) -> NDArray[np.float32]:
    """Colours of which one is clearly brighter, on either side."""
    colours = random.uniform(0, 255, (2, 3)).astype(np.float32)
    bright = int(random.integers(2))
    colours[bright] = 100 + colours[bright] * np.float32(155 / 255)
    colours[1 - bright] *= np.float32(100 / 255)
    return colours


def _disc(x: Plane, y: Plane, radius: float) -> Plane:
    return np.hypot(x, y) - np.float32(radius)


def _ring(x: Plane, y: Plane, radius: float) -> Plane:
    return np.abs(np.hypot(x, y) - np.float32(radius)) - np.float32(radius / 4)


def _square(x: Plane, y: Plane, radius: float) -> Plane:
    return np.maximum(np.abs(x), np.abs(y)) - np.float32(radius * 0.85)


def _triangle(x: Plane, y: Plane, radius: float) -> Plane:
    slanted = np.abs(x) * np.float32(math.sqrt(0.75)) + y * np.float32(0.5)
    return np.maximum(slanted, -y) - np.float32(radius * 0.6)


def _cross(x: Plane, y: Plane, radius: float) -> Plane:
    long, short = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    return np.maximum(long - np.float32(radius * 1.1), short - np.float32(radius / 4))


def _stripes(x: Plane, y: Plane, radius: float) -> Plane:
    return np.sin(x * np.float32(5 / radius)) / 8


def _checks(x: Plane, y: Plane, radius: float) -> Plane:
    pitch = np.float32(3.5 / radius)
    return np.sin(x * pitch) * np.sin(y * pitch) / 8


def _dots(x: Plane, y: Plane, radius: float) -> Plane:
    pitch = np.float32(radius)
    return np.hypot((x % pitch) - pitch / 2, (y % pitch) - pitch / 2) - pitch * np.float32(0.28)


DISTANCES: dict[str, Callable[[Plane, Plane, float], Plane]] = {
    "checks": _checks,
    "cross": _cross,
    "disc": _disc,
    "dots": _dots,
    "ring": _ring,
    "square": _square,
    "stripes": _stripes,
    "triangle": _triangle,
}
"""How far each place is outside of a shape of that radius (below zero: inside), by the shape's name."""
