"""A folder of images, one folder a class: listed once, and then kept as arrays that open in a moment.

The list is used again as long as no folder in it has changed, which their times tell: a file that comes, goes or is
renamed changes the time of its folder.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from paddock.data.cache import ArrayCache, Arrays
from paddock.data.images.files import EXTENSIONS, PackedStrings
from paddock.errors import DataError
from paddock.files import read_regular

HIDDEN = "."


class FolderImages:
    """The images below `root`/<class>/, classes by name; within a class by path, as torchvision orders them."""

    def __init__(self, root: Path, cache: Path, sum_before: int | None = None) -> None:
        self._root, self._cache = root, cache
        place = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
        index = ArrayCache((cache / place,), "images")
        arrays = index.get(
            {"kind": "folder", "root": place, "version": 1}, lambda: _list(root), partial(_is_current, root)
        )
        self._paths, self._labels = PackedStrings.unpack("paths", arrays), arrays["labels"]
        self._classes = [_printable(name) for name in PackedStrings.unpack("classes", arrays)]
        if sum_before is not None and sum_before != self._sum():
            raise DataError(
                f"{root} has changed while it was in use",
                why="another process found other files there",
                fix="let it rest, and start again",
            )

    def _sum(self) -> int:
        return zlib.crc32(self._paths.letters.data, zlib.crc32(self._labels.data))

    def __reduce__(self) -> tuple[Any, ...]:
        return FolderImages, (self._root, self._cache, self._sum())

    @property
    def classes(self) -> Sequence[str]:
        return self._classes

    def __len__(self) -> int:
        return len(self._labels)

    def label(self, index: int) -> int:
        return int(self._labels[index])

    def name(self, index: int) -> str:
        return os.path.join(self._root, self._paths[index])

    def read(self, index: int) -> bytes:
        return read_regular(self.name(index))


def _list(root: Path) -> Arrays:
    """Everything about the images below `root`."""
    try:
        times = [os.stat(root).st_mtime_ns]  # before listing: a change that the list may have missed shows
        entries = [entry for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith(HIDDEN)]
    except OSError as error:
        raise DataError(f"{root} cannot be listed", why=error.strerror or str(error)) from error
    classes = sorted(entry.name for entry in entries)
    if not classes:
        raise DataError(
            f"{root} has no folders in it", why="every class has its own", fix=f"put images into {root}/<class>/"
        )
    directories, counts = ["."], []
    paths: list[str] = []
    for name in classes:
        before = len(paths)
        for directory, time, files in _walk(root, name):
            directories.append(directory)
            times.append(time)
            paths += [f"{directory}/{file}" for file in files]
        counts.append(len(paths) - before)
        if not counts[-1]:
            raise DataError(
                f"{root / name} has no images in it",
                why=f"every folder in {root} is a class, and files are images if their names end in "
                + ", ".join(EXTENSIONS),
                fix="put images there, or remove the folder",
            )
    return {
        **PackedStrings.pack("paths", paths),
        **PackedStrings.pack("classes", classes),
        **PackedStrings.pack("directories", directories),
        "labels": np.repeat(np.arange(len(classes), dtype=np.int32), counts),
        "times": np.asarray(times, dtype=np.int64),
    }


def _walk(root: Path, name: str) -> list[tuple[str, int, list[str]]]:
    """The folders of a class: where each is, its time, its images. Links to folders are followed."""
    found: list[tuple[str, int, list[str]]] = []
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [(name, frozenset())]
    while waiting:
        directory, above = waiting.pop()
        images = []
        try:
            status = os.stat(root / directory)
            itself = status.st_dev, status.st_ino
            if itself in above:
                raise DataError(
                    f"{root / directory} cannot be listed", why="it is a link to a folder above it", fix="remove it"
                )
            with os.scandir(root / directory) as entries:
                for entry in entries:
                    if entry.name.startswith(HIDDEN):
                        continue
                    if entry.is_dir():
                        waiting.append((f"{directory}/{entry.name}", above | {itself}))
                    elif entry.name.lower().endswith(EXTENSIONS):
                        images.append(entry.name)
        except OSError as error:
            raise DataError(f"{root / directory} cannot be listed", why=error.strerror or str(error)) from error
        found.append((directory, status.st_mtime_ns, sorted(images)))
    return sorted(found)


def _is_current(root: Path, arrays: Arrays) -> bool:
    """Whether no folder has changed since it was listed."""
    try:
        times = [os.stat(root / directory).st_mtime_ns for directory in PackedStrings.unpack("directories", arrays)]
    except OSError:
        return False
    return bool(np.array_equal(times, arrays["times"]))


def _printable(name: str) -> str:
    """A class's name for people and files of text, though a folder's name may be any bytes."""
    return os.fsencode(name).decode("utf-8", "replace")
