"""The data section of image classification."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from paddock.data.config import DataConfig
from paddock.errors import bad_value
from paddock.models.config import SampleShape

SHAPES = ("checks", "cross", "disc", "dots", "ring", "square", "stripes", "triangle")
"""The classes of data.source = shapes."""
READ_ONLY = ("path", "on_error", "resize", "crop_scale", "crop_ratio")
"""Fields that mean nothing where images are made instead of read."""
MADE_ONLY = ("training_images", "validation_images")
"""Fields that mean nothing where the images are there already."""


class ImageData(DataConfig):
    """Images with their classes, and how training varies them."""

    source: Literal["folder", "shards", "synthetic", "shapes"] = "folder"
    """folder: PATH/train/<class>/* and PATH/val/<class>/*; shards: tar files as webdataset writes them,
    PATH/train/*.tar and PATH/val/*.tar; synthetic: noise, for trying a model without data; shapes: pictures of eight
    shapes and textures that Paddock draws itself, which a small model learns in a minute."""
    path: str | None = None
    """folder, shards: the folder that has train and val in it."""
    image_size: int = Field(224, ge=8)
    """Pixels along each side of what the model sees."""
    resize: int | None = Field(None, ge=8)
    """Evaluation: the shorter side is brought to this, and the middle is cut out; None is 8/7 of image_size: 256 for
    224."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Training: the smallest and largest part of an image's area that is cut out; 1 1 takes the middle, as large as
    it can be."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Training: the narrowest and widest form, width to height, that is cut out."""
    flip: float = Field(0.5, ge=0, le=1)
    """Training: how often left and right change places."""
    colour_jitter: float = Field(0.0, ge=0, le=1)
    """Training: how far brightness, contrast and saturation may change, as a part of themselves."""
    mixup: float = Field(0.0, ge=0)
    """Training: blend pairs of images and labels by a share from Beta(mixup, mixup); 0 does not. 0.2 is usual."""
    cutmix: float = Field(0.0, ge=0)
    """Training: paste a part of one image of a pair into the other, its area from Beta(cutmix, cutmix); 0 does not.
    With mixup too, each pair takes one of the two, half of the time."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """What is subtracted from red, green and blue (0 to 1); these are ImageNet's."""
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """What they are then divided by."""
    on_error: Literal["stop", "skip"] = "stop"
    """An image that cannot be read: stop with its name; or leave it out, and say so: training takes the next one in
    its place, evaluation counts the others."""
    training_images: int = Field(100_000, gt=0)
    """synthetic, shapes: how many images make an epoch."""
    validation_images: int = Field(1_000, gt=0)
    """synthetic, shapes: how many images to evaluate on."""

    def sample_shape(self) -> SampleShape:
        return SampleShape(self.image_size)

    def describe(self) -> str:
        return self.source if self.path is None else f"{self.source} {self.path}"

    def describe_sample(self) -> str:
        return f"images of {self.image_size} × {self.image_size}"

    @property
    def is_read(self) -> bool:
        """Whether the images are in files."""
        return self.source in ("folder", "shards")

    @property
    def shorter_side(self) -> int:
        """Evaluation: what the shorter side is brought to."""
        return round(self.image_size * 8 / 7) if self.resize is None else self.resize

    @property
    def least_side(self) -> int:
        """Training: pixels of an image's shorter side with which even the smallest, narrowest part need not grow."""
        narrowest = max(1, self.crop_ratio[1], 1 / self.crop_ratio[0])
        return math.ceil(self.image_size * math.sqrt(narrowest / self.crop_scale[0]))

    @property
    def mixes(self) -> bool:
        """Whether training blends images, so that a label is a share of several classes."""
        return self.mixup > 0 or self.cutmix > 0

    @model_validator(mode="after")
    def _check(self) -> ImageData:
        for name in MADE_ONLY if self.is_read else READ_ONLY:
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                others = "synthetic or shapes" if self.is_read else "folder or shards"
                raise bad_value(
                    f"data.{name}",
                    value,
                    f"data.source = {self.source} would ignore it",
                    f"leave it at {default}, or set --data.source {others}",
                )
        if self.shorter_side < self.image_size:
            raise bad_value(
                "data.resize",
                self.resize,
                f"an image of that size has no middle of {self.image_size} pixels, which is data.image_size",
                f"set --data.resize {self.image_size} or more, or None",
            )
        low, high = self.crop_scale
        if not 0 < low <= high <= 1:
            raise bad_value("data.crop_scale", self.crop_scale, "it is the smallest and largest part, above 0, up to 1")
        low, high = self.crop_ratio
        if not 0 < low <= high:
            raise bad_value("data.crop_ratio", self.crop_ratio, "it is the narrowest and the widest form, above 0")
        if min(self.std) <= 0:
            raise bad_value("data.std", self.std, "colours are divided by it, so each must be above 0")
        return self
