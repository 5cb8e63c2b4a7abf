"""Small image files for tests: folders of classes, and tar files of them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

PARTS = {"train": 6, "val": 3}


def picture(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    """Smooth colours, as a photograph has them; another seed gives other ones."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def write_folder(
    root: Path, classes: Sequence[str] = ("ant", "bee"), parts: Mapping[str, int] = PARTS, size: int = 40
) -> Path:
    """`root`/<part>/<class>/<number>.jpg, so many a class in each part."""
    for part, count in parts.items():
        for number, name in enumerate(classes):
            folder = root / part / name
            folder.mkdir(parents=True)
            for index in range(count):
                content = encoded(picture(hash_of(part, number, index), size, size * 3 // 4))
                (folder / f"{index}.jpg").write_bytes(content)
    return root


def write_shard(path: Path, members: Mapping[str, bytes]) -> None:
    """A tar file with these members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def hash_of(part: str, number: int, index: int) -> int:
    """A seed for each image."""
    return (number * 1000 + index) * 2 + (part == "val")
