"""What a model sees of an image: a part of it, brought to the model's size, varied, mixed with another, normalised.

Sizes are changed by torch's own antialiased interpolation, which computes on bytes, gives what Pillow's bilinear
filter gives (to one level of 255), and takes a quarter of its time.

Mixup and cutmix take samples 2n and 2n + 1 for a pair: which one is whose partner depends on the sample's number only,
not on the batch that it happens to be in, so that every layout sees the same pairs. The two are neighbours, so a
process usually has both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor
from torch.nn import functional as F

from paddock.data.images.config import ImageData
from paddock.data.images.decode import Pixels
from paddock.devices import adapter_of

ATTEMPTS = 10
GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""How much red, green and blue add to how bright a pixel looks."""


@dataclass(frozen=True)
class Box:
    """A part of an image."""

    left: int
    top: int
    width: int
    height: int

    def crop(self, pixels: Pixels) -> Pixels:
        return pixels[self.top : self.top + self.height, self.left : self.left + self.width]


def training_transform(pixels: Pixels, data: ImageData, random: Generator) -> Pixels:
    """A random part of an image, perhaps flipped and in other colours; what is drawn depends on `random` only."""
    height, width = pixels.shape[:2]
    box = random_crop(width, height, data.crop_scale, data.crop_ratio, random)
    return augment(resize(box.crop(pixels), data.image_size, data.image_size), data, random)


def augment(pixels: Pixels, data: ImageData, random: Generator) -> Pixels:
    """What is done to images of the final size."""
    if random.random() < data.flip:
        pixels = flip(pixels)
    if data.colour_jitter:
        pixels = colour_jitter(pixels, data.colour_jitter, random)
    return pixels


def evaluation_transform(pixels: Pixels, data: ImageData) -> Pixels:
    """The middle of an image, whose shorter side is first brought to `data.shorter_side`."""
    height, width = pixels.shape[:2]
    short, size = data.shorter_side, data.image_size
    if width <= height:
        width, height = short, max(short, int(short * height / width))
    else:
        width, height = max(short, int(short * width / height)), short
    middle = Box(round((width - size) / 2), round((height - size) / 2), size, size)
    return middle.crop(resize(pixels, width, height))


def random_crop(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float], random: Generator
) -> Box:
    """A part with a random area (of the whole) and a random form; the middle if none that was tried fits."""
    log_ratio = (math.log(ratio[0]), math.log(ratio[1]))
    for _ in range(ATTEMPTS):
        area = width * height * random.uniform(*scale)
        form = math.exp(random.uniform(*log_ratio))
        wide, high = round(math.sqrt(area * form)), round(math.sqrt(area / form))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(random.integers(width - wide + 1)), int(random.integers(height - high + 1))
            return Box(left, top, wide, high)
    form = min(max(width / height, ratio[0]), ratio[1])
    wide, high = min(width, max(1, round(height * form))), min(height, max(1, round(width / form)))
    return Box((width - wide) // 2, (height - high) // 2, wide, high)


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    if pixels.shape[:2] == (height, width):
        return pixels
    image = torch.from_numpy(np.ascontiguousarray(pixels))[None].permute(0, 3, 1, 2)  # channels last: the fast path
    changed = F.interpolate(image, (height, width), mode="bilinear", antialias=True, align_corners=False)
    return changed.permute(0, 2, 3, 1)[0].numpy()


def flip(pixels: Pixels) -> Pixels:
    """Left for right; numpy would move single bytes."""
    return torch.from_numpy(pixels).flip(1).numpy()


def colour_jitter(pixels: Pixels, strength: float, random: Generator) -> Pixels:
    """Other brightness, contrast and saturation, each by a factor of 1 ± strength."""
    brightness, contrast, saturation = random.uniform(1 - strength, 1 + strength, 3).astype(np.float32)
    colours = pixels * brightness
    grey = colours @ GREY
    # Contrast moves colours away from the mean grey, saturation from their own grey: together one weighted sum.
    level = grey.mean(dtype=np.float32) * (1 - contrast)
    colours *= contrast * saturation
    colours += (grey * (contrast * (1 - saturation)))[..., None] + level
    return np.rint(colours.clip(0, 255, out=colours)).astype(np.uint8)


@dataclass(frozen=True)
class Mix:
    """How much of an image is kept: `share` everywhere, or all of it outside of `hole`."""

    share: float
    hole: Box | None = None

    def apply(self, pixels: Pixels, partner: Pixels) -> Pixels:
        """The first image, with the second in it."""
        if self.hole is not None:
            mixed = pixels.copy()
            self.hole.crop(mixed)[:] = self.hole.crop(partner)
            return mixed
        share = np.float32(self.share)
        return np.rint(pixels * share + partner * (1 - share)).astype(np.uint8)


def partner_of(index: int) -> int:
    return index ^ 1


def draw_mix(data: ImageData, random: Generator) -> Mix:
    """The mix of a pair; `random` depends on the pair."""
    if data.cutmix and (not data.mixup or random.random() < 0.5):
        return _hole(data.image_size, random.beta(data.cutmix, data.cutmix), random)
    return Mix(random.beta(data.mixup, data.mixup))


def _hole(size: int, share: float, random: Generator) -> Mix:
    """A hole anywhere, even half outside: the share is what it really leaves."""
    side = int(size * math.sqrt(1 - share))
    left, top = (int(middle) - side // 2 for middle in random.integers(size, size=2))
    right, bottom = min(left + side, size), min(top + side, size)
    left, top = max(left, 0), max(top, 0)
    hole = Box(left, top, right - left, bottom - top)
    return Mix(1 - hole.width * hole.height / size**2, hole)


def stack(images: Sequence[Pixels]) -> Tensor:
    """[batch, height, width, 3] in one piece, which numpy's own stack does not promise."""
    batch = np.empty((len(images), *images[0].shape), dtype=np.uint8)
    for place, image in zip(batch, images, strict=True):
        place[:] = image
    return torch.from_numpy(batch)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Images [batch, height, width, 3] of bytes as [batch, 3, height, width] in float32, on their device.

    In memory the colours of a pixel stay side by side (channels last), and a row of pixels is one long vector for the
    arithmetic. On the host the memory is numpy's, which asks for large pages: else it takes longer to get than to fill.
    """
    count, height, width, colours = images.shape
    factor = images.new_tensor(1 / (255 * np.asarray(std)), dtype=torch.float32).repeat(width)
    shift = images.new_tensor(-np.asarray(mean) / np.asarray(std), dtype=torch.float32).repeat(width)
    shape = (count, height, width * colours)
    if adapter_of(images.device).computes_on_host:
        batch = torch.from_numpy(np.empty(shape, dtype=np.float32))
    else:
        batch = images.new_empty(shape, dtype=torch.float32)
    batch.copy_(images.view(shape)).mul_(factor).add_(shift)
    return batch.view(count, height, width, colours).permute(0, 3, 1, 2)
