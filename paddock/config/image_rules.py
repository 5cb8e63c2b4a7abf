"""The rules of image classification that span sections."""

from __future__ import annotations

from paddock.config.recipe import Recipe
from paddock.data.images.config import SHAPES, ImageData
from paddock.errors import ConfigError, bad_value
from paddock.models.resnet.config import ResNetConfig


def check_images(recipe: Recipe, world: int) -> str:
    """Where the images are, and how many classes they can have."""
    data, model = recipe.data, recipe.model
    assert isinstance(data, ImageData) and isinstance(model, ResNetConfig)
    if data.is_read and data.path is None:
        raise ConfigError(
            f"data.path is not set, and data.source = {data.source} reads it",
            why="there are no images to train on",
            fix="set --data.path FOLDER, or take --data.source shapes or synthetic",
        )
    if data.source == "shapes" and model.classes != len(SHAPES):
        raise bad_value(
            "model.classes",
            model.classes,
            f"data.source = shapes has {len(SHAPES)} classes: {', '.join(SHAPES)}",
            f"set --model.classes {len(SHAPES)}",
        )
    if recipe.tokenizer.kind != "none":
        raise bad_value("tokenizer.kind", recipe.tokenizer.kind, "images have no tokens", "set it to none")
    return f"{data.describe()}, {data.image_size} × {data.image_size}, {model.classes} classes"
