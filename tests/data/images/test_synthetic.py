"""Images out of nothing: each a function of its number."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.data.images.config import SHAPES, ImageData
from paddock.data.images.synthetic import DISTANCES, Noise, Shapes

PLAIN = ImageData(source="shapes", image_size=24, flip=0)


def test_shapes_come_in_turn_and_are_the_same_every_time() -> None:
    images = [Shapes(PLAIN, 100).training(index, np.random.default_rng()) for index in range(32)]
    assert [view.label for view in images] == [*range(8)] * 4
    again = [Shapes(PLAIN, 100).training(index, np.random.default_rng()) for index in range(32)]
    assert all(np.array_equal(one.pixels, other.pixels) for one, other in zip(images, again, strict=True))
    assert len({view.pixels.tobytes() for view in images}) == 32
    assert all(view.pixels.shape == (24, 24, 3) and view.pixels.dtype == np.uint8 for view in images)
    assert set(SHAPES) == set(DISTANCES) and list(SHAPES) == sorted(SHAPES)


def test_evaluation_has_other_images() -> None:
    shapes = Shapes(PLAIN, 100)
    for index in range(16):
        assert shapes.evaluation(index)[1] == index % 8
        assert not np.array_equal(shapes.evaluation(index)[0], shapes.training(index, np.random.default_rng())[0])


def test_a_disc_is_one_colour_inside_and_another_outside() -> None:
    pixels, label = Shapes(ImageData(source="shapes", image_size=64), 100).evaluation(SHAPES.index("disc"))
    assert SHAPES[label] == "disc"
    grey = pixels.mean(-1)
    corner, inside = np.median(grey[:8, :8]), np.median(grey[24:40, 24:40])
    assert abs(corner - inside) > 20


@pytest.mark.parametrize("size", [16, 64])
def test_noise_has_all_classes_and_all_levels(size: int) -> None:
    noise = Noise(ImageData(source="synthetic", image_size=size, flip=0), 10, 100)
    images = [noise.evaluation(index) for index in range(200)]
    assert {label for _, label in images} == set(range(10))
    levels = np.stack([pixels for pixels, _ in images])
    assert levels.shape == (200, size, size, 3)
    assert abs(levels.mean() - 127.5) < 1 and levels.min() == 0 and levels.max() == 255
    assert np.array_equal(noise.evaluation(3)[0], images[3][0])


def test_shapes_are_varied_in_training() -> None:
    shapes = Shapes(ImageData(source="shapes", image_size=24, flip=1, colour_jitter=0.5), 100)
    plain = Shapes(PLAIN, 100).training(0, np.random.default_rng())[0]
    varied = shapes.training(0, np.random.default_rng(0))[0]
    assert not np.array_equal(varied, plain) and not np.array_equal(varied, plain[:, ::-1])
    assert np.array_equal(varied, shapes.training(0, np.random.default_rng(0))[0])
