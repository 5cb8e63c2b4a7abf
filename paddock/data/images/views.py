"""What a model sees of an image: a part of it, brought to the model's size.

Sizes are changed by torch's own antialiased interpolation, which computes on bytes, gives what Pillow's bilinear
filter gives (to one level of 255), and takes a quarter of its time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from torch.nn import functional as F

from paddock.data.images.config import ImageData
from paddock.data.images.decode import Pixels

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

    def cut(self, pixels: Pixels) -> Pixels:
        return pixels[self.top : self.top + self.height, self.left : self.left + self.width]


def training_view(pixels: Pixels, data: ImageData, random: Generator) -> Pixels:
    """A random part of an image, perhaps flipped and in other colours; what is drawn depends on `random` only."""
    height, width = pixels.shape[:2]
    box = random_box(width, height, data.crop_scale, data.crop_ratio, random)
    return vary(change_size(box.cut(pixels), data.image_size, data.image_size), data, random)


def vary(pixels: Pixels, data: ImageData, random: Generator) -> Pixels:
    """What is done to images of the final size."""
    if random.random() < data.flip:
        pixels = flip(pixels)
    if data.colour_jitter:
        pixels = jitter(pixels, data.colour_jitter, random)
    return pixels


def evaluation_view(pixels: Pixels, data: ImageData) -> Pixels:
    """The middle of an image, whose shorter side is first brought to `data.shorter_side`."""
    height, width = pixels.shape[:2]
    short, size = data.shorter_side, data.image_size
    if width <= height:
        width, height = short, max(short, int(short * height / width))
    else:
        width, height = max(short, int(short * width / height)), short
    middle = Box(round((width - size) / 2), round((height - size) / 2), size, size)
    return middle.cut(change_size(pixels, width, height))


def random_box(
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


def change_size(pixels: Pixels, width: int, height: int) -> Pixels:
    if pixels.shape[:2] == (height, width):
        return pixels
    image = torch.from_numpy(np.ascontiguousarray(pixels))[None].permute(0, 3, 1, 2)  # channels last: the fast path
    changed = F.interpolate(image, (height, width), mode="bilinear", antialias=True, align_corners=False)
    return changed.permute(0, 2, 3, 1)[0].numpy()


def flip(pixels: Pixels) -> Pixels:
    """Left for right; numpy would move single bytes."""
    return torch.from_numpy(pixels).flip(1).numpy()


def jitter(pixels: Pixels, strength: float, random: Generator) -> Pixels:
    """Other brightness, contrast and saturation, each by a factor of 1 ± strength."""
    brightness, contrast, saturation = random.uniform(1 - strength, 1 + strength, 3).astype(np.float32)
    colours = pixels * brightness
    grey = colours @ GREY
    # Contrast moves colours away from the mean grey, saturation from their own grey: together one weighted sum.
    level = grey.mean(dtype=np.float32) * (1 - contrast)
    colours *= contrast * saturation
    colours += (grey * (contrast * (1 - saturation)))[..., None] + level
    return np.rint(colours.clip(0, 255, out=colours)).astype(np.uint8)
