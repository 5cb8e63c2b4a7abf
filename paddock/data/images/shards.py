"""Images in tar files, as webdataset lays them out: KEY.jpg with KEY.cls or KEY.json beside it.

The tar files are read through once, to note where every image lies; after that an image is read where it is, in any
order, so that shards are shuffled as well as folders are. Nothing is unpacked.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paddock.data.cache import ArrayCache, Arrays
from paddock.data.images.files import EXTENSIONS, PackedStrings
from paddock.errors import DataError

OPEN_AT_ONCE = 64
"""Tar files that a process keeps open."""
CLASS_NAMES = "classes.txt"
"""Beside the tar files: the names of classes 0, 1, …, a line each."""
LABEL_KEYS = ("label", "cls", "class")
"""Of a KEY.json."""


def shards_of(root: Path, part: str) -> list[Path]:
    """The tar files of one part, by name: `root`/`part`/*.tar, or those in `root` that have the part in their names."""
    inside = sorted((root / part).glob("*.tar"))
    return inside or sorted(root.glob(f"*{part}*.tar"))


class ShardImages:
    """The images of some tar files, in the order in which they lie there."""

    def __init__(self, shards: Sequence[Path], cache: Path) -> None:
        self._shards, self._cache = tuple(shards), cache
        self._open: OrderedDict[int, int] = OrderedDict()
        status = [os.stat(shard) for shard in shards]
        content = [(str(path), one.st_size, one.st_mtime_ns) for path, one in zip(shards, status, strict=True)]
        names = _class_names(shards[0].parent) or _class_names(shards[0].parent.parent)
        fingerprint = hashlib.sha256(repr((content, names)).encode("utf-8", "replace")).hexdigest()[:24]
        place = hashlib.sha256(os.fsencode(shards[0])).hexdigest()[:24]
        index = ArrayCache((cache / place,), fingerprint)
        arrays = index.get({"kind": "shards", "version": 1}, lambda: _list(shards, names))
        self._keys, self._classes = PackedStrings.unpack("keys", arrays), list(PackedStrings.unpack("classes", arrays))
        self._labels, self._places = arrays["labels"], arrays["places"]

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardImages, (self._shards, self._cache)

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    @property
    def classes(self) -> Sequence[str]:
        return self._classes

    def __len__(self) -> int:
        return len(self._labels)

    def label(self, index: int) -> int:
        return int(self._labels[index])

    def name(self, index: int) -> str:
        return f"{self._keys[index]} in {self._shards[self._places.item(index, 0)]}"

    def read(self, index: int) -> bytes:
        shard, offset, size = self._places[index].tolist()
        return os.pread(self._descriptor(shard), size, offset)

    def _descriptor(self, shard: int) -> int:
        if shard not in self._open:
            if len(self._open) == OPEN_AT_ONCE:
                os.close(self._open.popitem(last=False)[1])
            self._open[shard] = os.open(self._shards[shard], os.O_RDONLY | os.O_CLOEXEC)
        self._open.move_to_end(shard)
        return self._open[shard]


@dataclass
class _Entry:
    """One key of a shard, as far as it is known."""

    image: tuple[str, int, int] | None = None
    """Its name, where it begins, and how long it is."""
    label: str | None = None


def _list(shards: Sequence[Path], class_names: list[str]) -> Arrays:
    keys, labels, places = [], [], []
    for number, shard in enumerate(shards):
        for key, entry in _entries(shard):
            if entry.image is None:
                continue
            if entry.label is None:
                raise DataError(
                    f"{entry.image[0]} in {shard} has no label",
                    why=f"there is no {key}.cls (a number or a name), nor {key}.json with a {LABEL_KEYS[0]}",
                    fix="write the shards again, with labels",
                )
            name, offset, size = entry.image
            keys.append(name)
            labels.append(entry.label)
            places.append((number, offset, size))
    if not keys:
        raise DataError(f"there are no images in {shards[0]} … {shards[-1]}", fix="set --data.path to other shards")
    classes, numbers = _number(labels, class_names, shards)
    return {
        **PackedStrings.pack("keys", keys),
        **PackedStrings.pack("classes", classes),
        "labels": np.asarray(numbers, dtype=np.int32),
        "places": np.asarray(places, dtype=np.int64),
    }


def _entries(shard: Path) -> Iterator[tuple[str, _Entry]]:
    """What a tar file holds, by key: the part of a path before the first dot of its last name."""
    entries: dict[str, _Entry] = {}
    try:
        with tarfile.open(shard, "r:") as archive:
            for member in archive:
                if not member.isreg():
                    continue
                folder, _, file = member.name.rpartition("/")
                stem, _, extension = file.partition(".")
                key = f"{folder}/{stem}" if folder else stem
                extension = f".{extension.lower()}"
                if extension.endswith(EXTENSIONS):
                    entries.setdefault(key, _Entry()).image = (member.name, member.offset_data, member.size)
                elif extension in (".cls", ".json"):
                    content = archive.extractfile(member)
                    assert content is not None, "it is a regular file"
                    label = _label(content.read(), extension, f"{member.name} in {shard}")
                    entry = entries.setdefault(key, _Entry())
                    entry.label = label if entry.label is None or label is not None else entry.label
    except (tarfile.TarError, OSError) as error:
        raise DataError(
            f"{shard} cannot be read", why=str(error), fix="write it again: an uncompressed tar file is expected"
        ) from error
    yield from entries.items()


def _label(content: bytes, extension: str, where: str) -> str | None:
    try:
        if extension == ".cls":
            return content.decode().strip()
        values = json.loads(content)
    except ValueError as error:
        raise DataError(f"{where} cannot be understood", why=str(error), fix="write the shards again") from None
    found = [values[name] for name in LABEL_KEYS if name in values] if isinstance(values, dict) else []
    return str(found[0]) if found else None


def _number(labels: list[str], names: list[str], shards: Sequence[Path]) -> tuple[list[str], list[int]]:
    """Classes, and the number of each label: a number stands for itself, names are sorted or have their own list."""
    if all(label.isdecimal() for label in labels):
        numbers = [int(label) for label in labels]
        if names and max(numbers) >= len(names):
            raise DataError(
                f"a label is {max(numbers)}, and {CLASS_NAMES} has {len(names)} names",
                why=f"labels in {shards[0]} … are numbers from 0 on",
                fix=f"correct {CLASS_NAMES}",
            )
        return names or [str(number) for number in range(max(numbers) + 1)], numbers
    names = names or sorted(set(labels))
    places = {name: number for number, name in enumerate(names)}
    unknown = next((label for label in labels if label not in places), None)
    if unknown is not None:
        raise DataError(
            f'a label is "{unknown}", and {CLASS_NAMES} has no such name', fix=f"add it there, or remove {CLASS_NAMES}"
        )
    return names, [places[label] for label in labels]


def _class_names(folder: Path) -> list[str]:
    try:
        text = (folder / CLASS_NAMES).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
