"""Readers of images: tar files of them, and single files."""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from pathlib import Path
from random import Random

import numpy as np
from engine import Reader, scratch
from mutation import Files, damage_bytes, json_mutator
from PIL import Image

from paddock.data.images.config import ImageData
from paddock.data.images.decode import decode
from paddock.data.images.samples import StoredImages
from paddock.data.images.shards import ShardImages, shards_of
from paddock.data.images.transforms import evaluation_transform
from paddock.testing.samples.images import encoded, picture, write_shard

BLOCK = 512
"""Bytes: tar files are made of these."""
FIELDS = ((0, 100), (124, 12), (156, 1), (157, 100), (257, 8), (345, 155))
"""Of a header: where name, size, type, link, magic and prefix begin, and how long they are."""
DATA = ImageData(path="images", image_size=8)


def shard_seeds() -> list[Files]:
    jpeg, png = encoded(picture(0, 12, 8)), encoded(picture(1, 10, 10), "PNG")
    numbers = {"a.jpg": jpeg, "a.cls": b"1", "b.png": png, "b.cls": b"0"}
    names = {"x/a.jpg": jpeg, "x/a.json": b'{"label": "ant"}', "x/b.png": png, "x/b.json": b'{"cls": "bee"}'}
    found: list[Files] = []
    for members in (numbers, names):
        path = scratch() / "seed.tar"
        write_shard(path, members)
        found.append({"train.tar": path.read_bytes()})
    found[1]["classes.txt"] = b"ant\nbee\n"
    return [*found, {"train.tar": _pax_shard(jpeg)}]


def _pax_shard(image: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (("é" * 60 + ".jpg", image), ("é" * 60 + ".cls", b"2")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), 1.5
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def read_shard(folder: Path) -> object:
    shards = shards_of(folder, "train")
    if not shards:
        return None
    images = ShardImages(shards, folder / "cache")
    samples = StoredImages(images, np.arange(len(images.classes)), DATA)
    labels = []
    for index in range(min(len(images), 4)):
        pixels, label = samples.evaluation(index)
        assert pixels.shape == (8, 8, 3)
        labels.append(label)
    return len(images), labels, images.classes[:10]


def damage_tar(rng: Random, data: bytes) -> bytes:
    """A field of a header, with the header's sum made to fit; or any bytes."""
    if rng.random() < 0.4:
        return damage_bytes(rng, data)
    blocks = [at for at in range(0, len(data) - BLOCK + 1, BLOCK) if data[at + 257 : at + 262] == b"ustar"]
    if not blocks:
        return damage_bytes(rng, data)
    begin = rng.choice(blocks)
    header = bytearray(data[begin : begin + BLOCK])
    place, width = rng.choice(FIELDS)
    new = rng.choice(
        (
            b"%o" % rng.choice((0, 1, 511, 513, 10**6, 2**30, 2**33 - 1)),
            b"\x80" + rng.choice((2**30, 2**62, 2**63 - 1)).to_bytes(11, "big"),
            b"\xff" * width,
            rng.choice((b"0", b"1", b"2", b"5", b"6", b"7", b"g", b"x", b"L", b"S", b"V")),
            b"a.jpg",
            b"a.cls",
            b"../../a.jpg",
            b"PaxHeaders/a",
            rng.randbytes(width),
        )
    )
    header[place : place + width] = new[:width].ljust(width, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    changed = data[:begin] + bytes(header) + data[begin + BLOCK :]
    return damage_bytes(rng, changed) if rng.random() < 0.1 else changed


def image_seeds() -> list[Files]:
    colour, grey = picture(2, 14, 9), picture(3, 8, 8).convert("L")
    kinds = {"JPEG": colour, "PNG": colour, "BMP": grey, "WEBP": colour, "TIFF": grey, "PPM": grey}
    found = [{"image": encoded(image, kind)} for kind, image in kinds.items()]
    exif = Image.Exif()
    exif[0x0112] = 6
    options: list[tuple[Image.Image, str, dict[str, object]]] = [
        (colour, "JPEG", {"exif": exif}),
        (colour.convert("CMYK"), "JPEG", {}),
        (colour, "JPEG", {"progressive": True}),
        (colour.convert("P"), "PNG", {"transparency": 0}),
        (Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)), "PNG", {}),
        (colour.convert("P"), "GIF", {}),
    ]
    return [*found, *({"image": encoded(image, kind, **more)} for image, kind, more in options)]


def read_image(folder: Path) -> object:
    pixels = decode((folder / "image").read_bytes(), "image", least=4)
    assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == 3
    assert evaluation_transform(pixels, DATA).shape == (8, 8, 3)
    return pixels.shape


def damage_image(rng: Random, data: bytes) -> bytes:
    """A PNG's chunk with the sum made to fit, a JPEG's size, or any bytes."""
    if data.startswith(b"\x89PNG") and rng.random() < 0.6:
        return _damage_png(rng, data)
    if data.startswith(b"\xff\xd8") and rng.random() < 0.3:
        at = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
        if at > 0:
            size = struct.pack(">HH", *rng.choices((0, 1, 9, 65535, 65500, 16), k=2))
            return data[: at + 5] + size + data[at + 9 :]
    return damage_bytes(rng, data)


def _damage_png(rng: Random, data: bytes) -> bytes:
    chunks, at = [], 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    if not chunks:
        return damage_bytes(rng, data)
    number = rng.randrange(len(chunks))
    kind, content = chunks[number]
    match rng.randrange(4):
        case 0:
            chunks[number] = kind, damage_bytes(rng, content)
        case 1 if kind == b"IHDR":
            sizes = rng.choices((0, 1, 14, 65535, 2**31 - 1, 2**20), k=2)
            chunks[number] = kind, struct.pack(">II", *sizes) + content[8:]
        case 2:
            chunks.insert(
                number, (rng.choice((b"zTXt", b"iCCP", b"tRNS", b"PLTE", b"eXIf", b"IDAT", b"iTXt")), content)
            )
        case _:
            chunks[number] = rng.choice((b"IDAT", b"IEND", b"iCCP", b"zTXt", b"abcd")), content
    parts = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    ]
    return data[:8] + b"".join(parts)


def class_seeds() -> list[Files]:
    from paddock.inference.trained import write_classes

    write_classes(("ant", "bee", "中"), scratch())
    return [{"classes.json": (scratch() / "classes.json").read_bytes()}]


def read_class_names(folder: Path) -> object:
    from paddock.inference.trained import read_classes

    names = read_classes(folder)
    "".join(names).encode()
    return names


READERS = [
    Reader("image_shards", shard_seeds, read_shard, {".tar": damage_tar}, fresh=True, share=0.7),
    Reader("image", image_seeds, read_image, {"image": damage_image}),
    Reader("classes", class_seeds, read_class_names, {".json": json_mutator()}, share=0.3),
]
