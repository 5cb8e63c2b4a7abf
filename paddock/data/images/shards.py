"""Images in tar files, as webdataset lays them out: KEY.jpg with KEY.cls or KEY.json beside it.

The tar files are read through once, to note where every image lies; after that an image is read where it is, in any
order, so that shards are shuffled as well as folders are. Nothing is unpacked.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from paddock.data.cache import ArrayCache, Arrays
from paddock.data.images.files import EXTENSIONS, PackedStrings
from paddock.documents import Document, Parser, read_text
from paddock.errors import DataError, UserError, shown
from paddock.files import open_regular

OPEN_AT_ONCE = 64
"""Tar files that a process keeps open."""
CLASS_NAMES = "classes.txt"
"""Beside the tar files: the names of classes 0, 1, …, a line each."""
LARGEST_LABEL = 2**20
"""Bytes of a KEY.cls or KEY.json, and of what stands before a member in a tar file."""
MOST_NUMBERED = 2**20
"""Classes that have no names: each is given its number as one."""
_NUMBER = re.compile("[0-9]{1,18}")


def shards_of(root: Path, part: str) -> list[Path]:
    """The tar files of one part, by name: `root`/`part`/*.tar, or those in `root` that have the part in their names."""
    inside = sorted((root / part).glob("*.tar"))
    return inside or sorted(root.glob(f"*{part}*.tar"))


class ShardImages:
    """The images of some tar files, in the order in which they lie there."""

    def __init__(self, shards: Sequence[Path], cache: Path) -> None:
        self._shards, self._cache = tuple(shards), cache
        self._open: OrderedDict[int, int] = OrderedDict()
        status = [_status(shard) for shard in shards]
        content = [(str(path), one.st_size, one.st_mtime_ns) for path, one in zip(shards, status, strict=True)]
        names = _class_names(shards[0].parent) or _class_names(shards[0].parent.parent)
        fingerprint = hashlib.sha256(repr((content, names)).encode("utf-8", "replace")).hexdigest()[:24]
        place = hashlib.sha256(os.fsencode(shards[0])).hexdigest()[:24]
        index = ArrayCache((cache / place,), fingerprint)
        arrays = index.get({"kind": "shards", "version": 2}, lambda: _list(shards, names))
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
        content = os.pread(self._descriptor(shard), size, offset)
        if len(content) < size:
            raise DataError(f"{self.name(index)} cannot be read", why=f"the tar file ends after {len(content)} bytes")
        return content

    def _descriptor(self, shard: int) -> int:
        if shard not in self._open:
            if len(self._open) == OPEN_AT_ONCE:
                os.close(self._open.popitem(last=False)[1])
            self._open[shard] = os.open(self._shards[shard], os.O_RDONLY | os.O_CLOEXEC)
        self._open.move_to_end(shard)
        return self._open[shard]


def _status(shard: Path) -> os.stat_result:
    try:
        return os.stat(shard)
    except OSError as error:
        raise DataError(f"{shard} cannot be read", why=error.strerror or str(error)) from None


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
                    why=f"there is no {key}.cls (a number or a name), nor {key}.json with a label",
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
        with _Headers(shard) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in _members(archive, stream):
                folder, _, file = member.name.rpartition("/")
                stem, _, extension = file.partition(".")
                key = f"{folder}/{stem}" if folder else stem
                extension = f".{extension.lower()}"
                if not extension.endswith((*EXTENSIONS, ".cls", ".json")):
                    continue
                _check_plain(member)
                if extension.endswith(EXTENSIONS):
                    entries.setdefault(key, _Entry()).image = (member.name, member.offset_data, member.size)
                elif extension in (".cls", ".json"):
                    stream.seek(member.offset_data)
                    label = _label(stream.read(member.size), extension, f"{member.name} in {shard}")
                    entry = entries.setdefault(key, _Entry())
                    entry.label = label if entry.label is None or label is not None else entry.label
    except UserError:
        raise
    except Exception as error:  # the library trips over whatever a broken file has, and says so in many ways
        why = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{shard} cannot be read", why=shown(why), fix="write it again: an uncompressed tar file is expected"
        ) from None
    yield from entries.items()


class _Headers(io.FileIO):
    """A tar file for the library, which takes the memory that a header asks for: headers and labels are small."""

    def __init__(self, path: Path) -> None:
        with open_regular(path) as stream:
            super().__init__(os.dup(stream.fileno()))
        self.length = self.seek(0, os.SEEK_END)
        self.seek(0)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= LARGEST_LABEL:
            raise tarfile.ReadError(f"a header or label of {size} bytes, where {LARGEST_LABEL} are plenty")
        return super().read(size)


def _members(archive: tarfile.TarFile, stream: _Headers) -> Iterator[tarfile.TarInfo]:
    """Every member, each behind the one before, and no more of it than the file has."""
    before = -1
    for member in archive:
        if member.offset_data <= before or member.size < 0:
            raise tarfile.ReadError(f"{shown(member.name)} does not lie behind the member before it")
        before = member.offset_data
        if member.isreg() and not member.issparse() and member.offset_data + member.size > stream.length:
            raise tarfile.ReadError(
                f"{shown(member.name)} is said to have {member.size} bytes, and the file ends before"
            )
        yield member
    stream.seek(archive.offset)
    if stream.read(tarfile.BLOCKSIZE).strip(b"\0"):  # where the library takes a damaged header for the end
        raise tarfile.ReadError(f"what is at byte {archive.offset} is no header of a member")


def _check_plain(member: tarfile.TarInfo) -> None:
    """An image or a label is a file of its own: what is left out without a word would be missed by nobody."""
    if member.isdir():
        raise tarfile.ReadError(f"{shown(member.name)} is a folder, not a file")
    if not member.isreg():
        raise tarfile.ReadError(f"{shown(member.name)} is a link or a device, not a file")
    if member.issparse():
        raise tarfile.ReadError(f"{shown(member.name)} is a sparse file, whose bytes do not lie in a row")


class LabelEntry(Document):
    """What we read of a KEY.json."""

    label: str | int | float | None = None
    cls: str | int | float | None = None
    named_class: str | int | float | None = Field(None, alias="class")


_parse_label = Parser(LabelEntry, fix="write the shards again")


def _label(content: bytes, extension: str, where: str) -> str | None:
    if extension == ".json":
        entry = _parse_label(content, where)
        return next((str(one) for one in (entry.label, entry.cls, entry.named_class) if one is not None), None)
    try:
        return content.decode().strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{where} cannot be understood", why=str(error), fix="write the shards again") from None


def _number(labels: list[str], names: list[str], shards: Sequence[Path]) -> tuple[list[str], list[int]]:
    """Classes, and the number of each label: a number stands for itself, names are sorted or have their own list."""
    if all(_NUMBER.fullmatch(label) for label in labels):
        numbers = [int(label) for label in labels]
        if max(numbers) >= MOST_NUMBERED:
            raise DataError(
                f"a label is {max(numbers)}",
                why=f"labels in {shards[0]} … are numbers from 0 on, and {MOST_NUMBERED:,} classes are plenty",
                fix="number the classes from 0 on, or write their names",
            )
        if names and max(numbers) >= len(names):
            raise DataError(
                f"a label is {max(numbers)}, and {CLASS_NAMES} has {len(names)} names",
                why=f"labels in {shards[0]} … are numbers from 0 on",
                fix=f"correct {CLASS_NAMES}",
            )
        return names or [str(number) for number in range(max(numbers) + 1)], numbers
    names = names or sorted(set(labels))
    if len(set(names)) < len(names):
        raise DataError(f"{CLASS_NAMES} has a name twice", why="which of them a label means cannot be told")
    places = {name: number for number, name in enumerate(names)}
    unknown = next((label for label in labels if label not in places), None)
    if unknown is not None:
        raise DataError(
            f'a label is "{shown(unknown)}", and {CLASS_NAMES} has no such name',
            fix=f"add it there, or remove {CLASS_NAMES}",
        )
    return names, [places[label] for label in labels]


def _class_names(folder: Path) -> list[str]:
    path = folder / CLASS_NAMES
    if not os.path.lexists(path):
        return []
    try:
        text = read_text(path, max_bytes=LARGEST_LABEL * 16).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text in UTF-8", why=str(error)) from None
    return [line.strip() for line in text.splitlines() if line.strip()]
