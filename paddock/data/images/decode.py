"""From the bytes of an image file to its pixels, upright, in red, green and blue.

Ordinary JPEGs go through simplejpeg, a thin layer over libjpeg-turbo that needs 60 % of Pillow's time and, being the
same library inside, makes the same pixels. All else is Pillow's: other formats, CMYK, photographs that lie on their
side, and whatever simplejpeg finds odd, so that Pillow alone decides what is broken. Without simplejpeg, Pillow does
it all. What a file is, its content says, not its name.
"""

from __future__ import annotations

import io
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import DataError, MachineError

Pixels = NDArray[np.uint8]
"""[height, width, 3]"""

JPEG = b"\xff\xd8\xff"
EXIF = b"Exif\0\0"
MOST_PIXELS = 2**26
"""Of what is decoded, so that an image takes less than half a gigabyte: a few bytes can claim more than there is."""
MOST_STRETCHED = 256
"""How many times as long as wide an image may be: its shorter side is brought to the model's size, and then the longer
one is this much longer than that."""
ORIENTATION = 0x0112
UPRIGHT = 1


def decode(content: bytes, name: str, least: int | None = None) -> Pixels:
    """The pixels of an image file; `name` is for the error about one that cannot be read.

    With `least`, a large JPEG may be decoded to a half, a quarter or an eighth of its size, which is faster, as long
    as its shorter side keeps so many pixels.
    """
    if content.startswith(JPEG):
        pixels = _decode_jpeg(content, least)
        if pixels is not None:
            return pixels
    return _decode_any(content, name, least)


def _part(width: int, height: int, least: int | None) -> int:
    """By how much to divide the size."""
    if least is None:
        return 1
    return next((part for part in (8, 4, 2) if min(width, height) // part >= least), 1)


def _too_large(width: int, height: int) -> str:
    """Why so many pixels are not decoded; nothing where they are."""
    if width * height > MOST_PIXELS:
        return f"where {MOST_PIXELS:,} are plenty"
    if max(width, height) > MOST_STRETCHED * min(width, height):
        return f"more than {MOST_STRETCHED} times as long as wide"
    return ""


def _decode_jpeg(content: bytes, least: int | None) -> Pixels | None:
    """By simplejpeg; None if it is not there, or if this file is better left to Pillow."""
    library = _simplejpeg()
    if library is None or (content.find(EXIF, 0, 2**16) >= 0 and not _is_upright(content)):
        return None
    try:
        height, width, colours, _ = library.decode_jpeg_header(content)
        if colours not in ("YCbCr", "Gray") or _too_large(width, height):
            return None
        part = _part(width, height, least)
        pixels: Pixels = library.decode_jpeg(content, min_height=height // part, min_width=width // part)
    except ValueError:
        return None
    return pixels


def _is_upright(content: bytes) -> bool:
    image = _pillow()
    try:
        with image.open(io.BytesIO(content)) as opened:
            return bool(opened.getexif().get(ORIENTATION, UPRIGHT) == UPRIGHT)
    except Exception:  # Pillow will say what is wrong when it decodes the whole
        return False


def _decode_any(content: bytes, name: str, least: int | None) -> Pixels:
    image = _pillow()
    from PIL import ImageOps, UnidentifiedImageError

    try:
        with image.open(io.BytesIO(content)) as opened:
            part = _part(opened.width, opened.height, least)
            opened.draft(None, (opened.width // part, opened.height // part))  # only JPEG knows how
            if refused := _too_large(opened.width, opened.height):
                raise ValueError(f"it has {opened.width} × {opened.height} pixels, {refused}")
            opened.load()
            ImageOps.exif_transpose(opened, in_place=True)
            return np.array(_in_colour(opened))
    except UnidentifiedImageError:
        what = "it is empty" if not content else f"its first bytes are {content[:8]!r}"
        raise _unreadable(name, f"this is not an image: {what}") from None
    except Exception as error:  # Pillow's plugins raise whatever a broken file makes them trip over
        raise _unreadable(name, " ".join(str(error).split()) or type(error).__name__) from None


def _in_colour(image: Any) -> Any:
    """As red, green and blue of 8 bits each; transparency is dropped, as everybody's training does."""
    if image.mode.startswith("I"):  # grey of 16 bits: Pillow would clip it to 8
        levels = np.asarray(image).clip(0, 2**16 - 1)
        return _pillow().fromarray((levels >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def _unreadable(name: str, why: str) -> DataError:
    fix = "repair or remove it, or leave such images out with --data.on-error skip"
    return DataError(f"{name} cannot be read", why=why, fix=fix)


@cache
def _simplejpeg() -> ModuleType | None:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def check_reader() -> None:
    """That images can be read at all, on this machine."""
    _pillow()


@cache
def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MachineError(
            "Pillow is not installed", why="it reads images", fix="pip install paddock[vision]"
        ) from None
    return Image
