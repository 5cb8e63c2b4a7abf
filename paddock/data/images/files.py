"""What a collection of labelled image files offers, wherever they lie; and how their names are kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.data.cache import Arrays, cache_folder
from paddock.data.images.config import ImageData
from paddock.errors import DataError
from paddock.objects.fetch import local_path

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
    root, cache = local_path(data.path).absolute(), cache_folder(data) / "images"
    if not os.path.isdir(root):
        raise DataError(f"there is no folder {root}", why=f"data.path = {data.path}", fix="set --data.path FOLDER")
    if data.source == "folder":
        return FolderImages(root / part, cache) if os.path.isdir(root / part) else None
    shards = shards_of(root, part)
    return ShardImages(shards, cache) if shards else None


def no_part(data: ImageData, part: Part) -> DataError:
    """The error about a part that is needed and not there."""
    places = {"folder": f"{part}/<class>/*.jpg", "shards": f"{part}/*.tar (or *{part}*.tar)"}
    fix = "put images there, or set --data.path to the folder that has them"
    if part == "val":
        fix += "; or set --evaluate.every None"
    return DataError(f"{data.path} has no {places[data.source]}", why="that is where images are looked for", fix=fix)


class PackedStrings(Sequence[str]):
    """Strings by their number: arrays that can be mapped into memory. A list of a million takes seconds to load."""

    def __init__(self, letters: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.letters, self._ends = letters, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if not 0 <= index < len(self):
            raise IndexError(index)
        begin = self._ends.item(index - 1) if index else 0
        return os.fsdecode(self.letters[begin : self._ends.item(index)].tobytes())

    @staticmethod
    def pack(name: str, strings: Iterable[str]) -> Arrays:
        """The arrays of some strings, for a file in which they are called `name`."""
        encoded = [os.fsencode(string) for string in strings]
        return {
            f"{name}.letters": np.frombuffer(b"".join(encoded), np.uint8),
            f"{name}.ends": np.cumsum([len(letters) for letters in encoded], dtype=np.int64),
        }

    @staticmethod
    def unpack(name: str, arrays: Arrays) -> PackedStrings:
        return PackedStrings(arrays[f"{name}.letters"], arrays[f"{name}.ends"])
