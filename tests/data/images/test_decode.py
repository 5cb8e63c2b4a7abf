"""Image files of every kind become upright pixels in three colours; Pillow is the judge."""

from __future__ import annotations

import builtins
import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from paddock.data.images import decode as module
from paddock.data.images.decode import decode
from paddock.errors import DataError, MachineError
from paddock.testing.samples.images import encoded, picture

EXIF_ORIENTATION = 0x0112


def by_pillow(content: bytes) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB"))


@pytest.fixture(params=["simplejpeg", "pillow"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pillow":
        monkeypatch.setattr(module, "_simplejpeg", lambda: None)
    return str(request.param)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(40, 30), (33, 47), (1, 1), (500, 375)])
def test_jpegs_are_the_same_from_both_libraries(
    library: str, size: tuple[int, int], subsampling: str, progressive: bool
) -> None:
    content = encoded(picture(0, *size), subsampling=subsampling, progressive=progressive, quality=90)
    pixels = decode(content, "it")
    assert pixels.shape == (size[1], size[0], 3)
    assert np.array_equal(pixels, by_pillow(content))


def test_ordinary_jpegs_do_not_go_through_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_decode_any", lambda *arguments: pytest.fail("Pillow was asked"))
    decode(encoded(picture(0)), "it")
    decode(encoded(picture(0).convert("L")), "it")


@pytest.mark.parametrize(
    ("least", "part"), [(None, 1), (377, 1), (376, 2), (189, 2), (188, 4), (95, 4), (94, 8), (1, 8)]
)
def test_large_jpegs_are_decoded_smaller_and_alike(library: str, least: int | None, part: int) -> None:
    content = encoded(picture(6, 1001, 753), quality=90)
    pixels = decode(content, "it", least)
    assert pixels.shape == (-(-753 // part), -(-1001 // part), 3)
    opened = Image.open(io.BytesIO(content))
    opened.draft("RGB", (1001 // part, 753 // part))
    assert np.array_equal(pixels, np.asarray(opened))
    whole = picture(6, 1001, 753).resize(pixels.shape[1::-1], Image.Resampling.BOX)
    assert np.abs(pixels.astype(int) - np.asarray(whole)).mean() < 2


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_jpegs_of_other_colours(library: str, mode: str) -> None:
    content = encoded(picture(1).convert(mode), quality=95)
    assert np.array_equal(decode(content, "it"), by_pillow(content))
    assert np.abs(decode(content, "it").astype(int) - np.asarray(picture(1).convert(mode).convert("RGB"))).mean() < 6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_that_lie_on_their_side_are_put_upright(library: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    content = encoded(picture(2), exif=exif, quality=95)
    pixels = decode(content, "it")
    assert pixels.shape[:2] == ((30, 40) if orientation < 5 else (40, 30))
    assert np.array_equal(pixels, by_pillow(content))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "TIFF"])
def test_other_formats_whatever_their_name(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(decode(encoded(picture(3), kind, **options), "it.jpg"), np.asarray(picture(3)))


@pytest.mark.parametrize("mode", ["P", "L", "1", "LA", "RGBA"])
def test_palettes_grey_and_transparency(mode: str) -> None:
    image = picture(4).convert(mode)
    assert np.array_equal(decode(encoded(image, "PNG"), "it"), np.asarray(image.convert("RGB")))


def test_a_transparent_palette_keeps_its_colours() -> None:
    image = picture(4).quantize(8)
    content = encoded(image, "PNG", transparency=bytes([0, 128, *[255] * 6]))
    assert np.array_equal(decode(content, "it"), np.asarray(image.convert("RGB")))


def test_sixteen_bits_keep_their_upper_eight() -> None:
    levels = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    pixels = decode(encoded(Image.fromarray(levels), "PNG"), "it")
    assert np.array_equal(pixels, np.repeat((levels >> 8).astype(np.uint8)[..., None], 3, axis=2))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"to be or not to be", "not an image: its first bytes are b'to be or"),
        (b"", "not an image: it is empty"),
        (encoded(picture(5, 200, 150))[:1500], "truncated"),
        (encoded(picture(5, 200, 150), "PNG")[:400], "truncated"),
        (b"\xff\xd8\xff\xe0" + b"garbage" * 10, ""),
    ],
)
def test_what_cannot_be_read_is_named(library: str, content: bytes, why: str) -> None:
    with pytest.raises(DataError) as caught:
        decode(content, "train/ant/7.jpg")
    assert caught.value.what == "train/ant/7.jpg cannot be read"
    assert why in caught.value.why
    assert "--data.on-error skip" in caught.value.fix


def test_without_pillow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_pillow(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("PIL"):
            raise ImportError(name)
        return real(name, *rest, **more)

    module._pillow.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without_pillow)
    with pytest.raises(MachineError, match="Pillow is not installed") as caught:
        decode(b"anything", "it")
    assert "paddock[vision]" in caught.value.fix


@pytest.mark.parametrize(
    ("width", "height", "why"),
    [
        (12_000, 12_000, "12000 × 12000 pixels, where 67,108,864 are plenty"),
        (8, 8_000_000, "8 × 8000000 pixels, more than 256 times as long as wide"),
    ],
)
def test_an_image_that_claims_more_pixels_than_memory_holds(width: int, height: int, why: str) -> None:
    content = bytearray(encoded(picture(0), "PNG"))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    with pytest.raises(DataError, match=why):
        decode(bytes(content), "a.png")
