"""What a collection of labelled image files offers, wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from paddock.data.images.config import ImageData
from paddock.data.prepare import cache_folder
from paddock.errors import DataError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff")
"""Of the files that are taken for images, as torchvision does."""

Part = Literal["train", "val"]


class ImageFiles(Protocol):
    """Image files by their number. Can be sent to a process that reads them."""

    @property
    def classes(self) -> Sequence[str]:
        """By their number, which is what `label` gives."""

    def __len__(self) -> int: ...

    def label(self, index: int) -> int: ...

    def name(self, index: int) -> str:
        """Where the image is, for people."""

    def read(self, index: int) -> bytes: ...


def open_files(data: ImageData, part: Part) -> ImageFiles | None:
    """The files of one part, by their index, which is built if there is none; None if there is no such part."""
    from paddock.data.images.folder import FolderImages
    from paddock.data.images.shards import ShardImages, shards_of

    assert data.path is not None, "a rule of the recipe sees to it"
    root, cache = Path(data.path).expanduser().absolute(), cache_folder(data) / "images"
    if not root.is_dir():
        raise DataError(f"there is no folder {root}", why=f"data.path = {data.path}", fix="set --data.path FOLDER")
    if data.source == "folder":
        return FolderImages(root / part, cache) if (root / part).is_dir() else None
    shards = shards_of(root, part)
    return ShardImages(shards, cache) if shards else None


def no_part(data: ImageData, part: Part) -> DataError:
    """The error about a part that is needed and not there."""
    places = {"folder": f"{part}/<class>/*.jpg", "shards": f"{part}/*.tar (or *{part}*.tar)"}
    fix = "put images there, or set --data.path to the folder that has them"
    if part == "val":
        fix += "; or set --evaluate.every None"
    return DataError(f"{data.path} has no {places[data.source]}", why="that is where images are looked for", fix=fix)
