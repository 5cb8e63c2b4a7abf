"""What a model sees of an image, against what Pillow makes of the same image."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from paddock.data.images.config import ImageData
from paddock.data.images.transforms import (
    colour_jitter,
    evaluation_transform,
    normalise,
    random_crop,
    resize,
    training_transform,
)
from paddock.errors import ConfigError
from paddock.testing.samples.images import picture

BILINEAR = Image.Resampling.BILINEAR


def noisy(width: int, height: int) -> Image.Image:
    noise = np.random.default_rng(0).normal(0, 20, (height, width, 3))
    return Image.fromarray((np.asarray(picture(0, width, height)) + noise).clip(0, 255).astype(np.uint8))


def largest_difference(pixels: np.ndarray, image: Image.Image) -> int:
    return int(np.abs(pixels.astype(int) - np.asarray(image)).max())


@pytest.mark.parametrize("size", [(224, 224), (20, 300), (500, 375), (7, 5)])
def test_sizes_change_as_with_pillow(size: tuple[int, int]) -> None:
    image = noisy(500, 375)
    assert largest_difference(resize(np.array(image), *size), image.resize(size, BILINEAR)) <= 1


def test_a_part_that_lies_inside_is_not_touched_by_what_is_around_it() -> None:
    image = noisy(500, 375)
    part = resize(np.array(image)[50:250, 100:380], 96, 96)
    assert largest_difference(part, image.crop((100, 50, 380, 250)).resize((96, 96), BILINEAR)) <= 1


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (256, 256), (100, 301), (60, 30)])
def test_evaluation_sees_what_everybody_does(width: int, height: int) -> None:
    """The shorter side to 256, as torchvision rounds the longer, then the middle."""
    image = noisy(width, height)
    longer = int(256 * max(width, height) / min(width, height))
    resized = image.resize((256, longer) if width < height else (longer, 256), BILINEAR)
    left, top = round((resized.width - 224) / 2), round((resized.height - 224) / 2)
    seen = evaluation_transform(np.array(image), ImageData(path="it"))
    assert largest_difference(seen, resized.crop((left, top, left + 224, top + 224))) <= 1


def test_the_shorter_side_follows_the_image_size() -> None:
    assert ImageData().shorter_side == 256
    assert ImageData(image_size=32).shorter_side == 37
    assert ImageData(image_size=32, resize=32).shorter_side == 32


@pytest.mark.parametrize("scale", [0.08, 0.35, 1.0])
def test_images_decoded_smaller_still_hold_enough_for_every_part(scale: float) -> None:
    data = ImageData(path="it", crop_scale=(scale, 1.0))
    side, random = data.least_side, np.random.default_rng(0)
    boxes = [random_crop(side, side, data.crop_scale, data.crop_ratio, random) for _ in range(2000)]
    smallest = min(min(box.width, box.height) for box in boxes)
    assert 223 <= smallest < (260 if scale < 1 else 270), "enough, and not much more than enough"


@given(
    st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)).map(sorted),
    st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)).map(sorted),
    st.integers(0, 2**32),
)
def test_random_parts_lie_inside(size: tuple[int, int], scale: list[float], ratio: list[float], seed: int) -> None:
    width, height = size
    box = random_crop(width, height, (scale[0], scale[1]), (ratio[0], ratio[1]), np.random.default_rng(seed))
    assert box.left >= 0 and box.width > 0 and box.left + box.width <= width
    assert box.top >= 0 and box.height > 0 and box.top + box.height <= height


def test_random_parts_have_the_areas_and_forms_that_were_asked_for() -> None:
    random = np.random.default_rng(0)
    boxes = [random_crop(500, 375, (0.08, 1.0), (3 / 4, 4 / 3), random) for _ in range(2000)]
    areas = np.array([box.width * box.height / (500 * 375) for box in boxes])
    forms = np.array([box.width / box.height for box in boxes])
    assert 0.07 < areas.min() < 0.1 and 0.95 < areas.max() <= 1
    assert 0.73 < forms.min() < 0.78 and 1.28 < forms.max() < 1.36
    assert 0.40 < areas.mean() < 0.52, "large ones do not always fit"
    assert min(box.left for box in boxes) == 0 and max(box.left + box.width for box in boxes) == 500


def test_a_crop_of_the_whole_is_the_middle() -> None:
    data = ImageData(path="it", image_size=30, crop_scale=(1, 1), crop_ratio=(1, 1), flip=0)
    image = np.asarray(noisy(40, 30))
    assert np.array_equal(training_transform(image, data, np.random.default_rng(0)), image[:, 5:35])


@pytest.mark.parametrize(("flip", "expected"), [(0.0, 0.0), (0.3, 0.3), (1.0, 1.0)])
def test_flips_come_as_often_as_asked(flip: float, expected: float) -> None:
    data = ImageData(path="it", image_size=30, crop_scale=(1, 1), crop_ratio=(1, 1), flip=flip)
    image = np.array(noisy(30, 30))
    views = [training_transform(image, data, np.random.default_rng(seed)) for seed in range(400)]
    flipped = [np.array_equal(view, image[:, ::-1]) for view in views]
    assert all(flip_it or np.array_equal(view, image) for flip_it, view in zip(flipped, views, strict=True))
    assert abs(np.mean(flipped) - expected) < 0.08


class Given:
    """Instead of random numbers, those that a test wants."""

    def __init__(self, *factors: float) -> None:
        self._factors = factors

    def uniform(self, low: float, high: float, count: int) -> np.ndarray:
        assert (low, high, count) == (0.6, 1.4, 3)
        return np.array(self._factors)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("factor", [0.6, 1.0, 1.3])
def test_colours_change_as_with_pillow(place: int, factor: float) -> None:
    image = Image.fromarray((64 + np.asarray(picture(3)) // 3).astype(np.uint8))  # far from 0 and 255
    factors = [1.0, 1.0, 1.0]
    factors[place] = factor
    enhance = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[place]
    changed = colour_jitter(np.asarray(image), 0.4, Given(*factors))  # type: ignore[arg-type]
    assert largest_difference(changed, enhance(image).enhance(factor)) <= 2


def test_colours_stay_in_range() -> None:
    image = np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    bright = colour_jitter(image, 0.4, Given(1.4, 1.4, 1.4))  # type: ignore[arg-type]
    assert bright.dtype == np.uint8 and bright.max() == 255 and bright.min() == 0


def test_normalised_numbers_are_right_and_channels_last() -> None:
    import torch

    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 9, 7, 3), dtype=np.uint8))
    mean, std = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    batch = normalise(images, mean.tolist(), std.tolist())
    expected = (images.float() / 255 - mean) / std
    torch.testing.assert_close(batch, expected.permute(0, 3, 1, 2), rtol=1e-5, atol=1e-5)
    assert batch.shape == (3, 3, 9, 7) and batch.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"source": "shapes", "path": "x"}, "data.path = x"),
        ({"source": "synthetic", "crop_scale": (0.5, 1)}, "data.crop_scale"),
        ({"source": "folder", "training_images": 10}, "data.training_images = 10"),
        ({"resize": 100}, "data.resize = 100"),
        ({"crop_scale": (0.5, 0.1)}, "data.crop_scale"),
        ({"crop_ratio": (0, 1)}, "data.crop_ratio"),
        ({"std": (1, 0, 1)}, "data.std"),
        ({"flip": 2}, "flip"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        ImageData(**values)
