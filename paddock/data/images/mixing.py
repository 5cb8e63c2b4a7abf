"""Blending two training images and their labels: mixup and cutmix.

Samples 2n and 2n + 1 are a pair: which one is whose partner depends on the sample's number only, not on the batch that
it happens to be in, so that every layout sees the same blends. The two are neighbours, so a process usually has both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from paddock.data.images.config import ImageData
from paddock.data.images.decode import Pixels
from paddock.data.images.views import Box


@dataclass(frozen=True)
class Blend:
    """How much of an image is kept: `share` everywhere, or all of it outside of `hole`."""

    share: float
    hole: Box | None = None

    def apply(self, pixels: Pixels, partner: Pixels) -> Pixels:
        """The first image, with the second in it."""
        if self.hole is not None:
            mixed = pixels.copy()
            self.hole.cut(mixed)[:] = self.hole.cut(partner)
            return mixed
        share = np.float32(self.share)
        return np.rint(pixels * share + partner * (1 - share)).astype(np.uint8)


def partner_of(index: int) -> int:
    return index ^ 1


def draw_blend(data: ImageData, random: Generator) -> Blend:
    """The blend of a pair; `random` depends on the pair."""
    if data.cutmix and (not data.mixup or random.random() < 0.5):
        return _hole(data.image_size, random.beta(data.cutmix, data.cutmix), random)
    return Blend(random.beta(data.mixup, data.mixup))


def _hole(size: int, share: float, random: Generator) -> Blend:
    """A hole anywhere, even half outside: the share is what it really leaves."""
    side = int(size * math.sqrt(1 - share))
    left, top = (int(middle) - side // 2 for middle in random.integers(size, size=2))
    right, bottom = min(left + side, size), min(top + side, size)
    left, top = max(left, 0), max(top, 0)
    hole = Box(left, top, right - left, bottom - top)
    return Blend(1 - hole.width * hole.height / size**2, hole)
