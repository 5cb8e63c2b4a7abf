"""Plots as PNG, in the light colours, for where SVG cannot go; Pillow paints them: `pip install "paddock[vision]"`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from paddock.errors import MachineError
from paddock.telemetry.drawing.plots import WIDTH, Dot, Place, Plot, Shape, Stroke, shapes
from paddock.telemetry.drawing.svg import LIGHT

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

SCALE = 2
"""Pixels of the picture in a unit of the plot."""
FINER = 2
"""It is painted so much larger, and made smaller, so that lines are smooth."""
DASHES = {"mark": (2.0, 4.0), "limit": (5.0, 4.0), "curve": (7.0, 4.0)}
ANCHORS = {"start": "l", "middle": "m", "end": "r"}
FAINT = {"wide": 0.45, "thin": 0.7}
"""How much of a colour is laid over the ground."""


def paint(plots: Sequence[Plot]) -> bytes:
    """Plots under each other, as the bytes of a PNG file."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MachineError(
            "a PNG is painted by Pillow, which cannot be imported",
            why=str(error),
            fix='pip install "paddock[vision]", or write an .svg',
        ) from error
    factor = SCALE * FINER
    size = WIDTH * factor, sum(plot.height for plot in plots) * factor
    image = Image.new("RGB", size, LIGHT["surface"])
    canvas, height = ImageDraw.Draw(image), 0
    for plot in plots:
        for shape in shapes(plot):
            _paint(canvas, shape, height)
        height += plot.height
    stream = BytesIO()
    image.resize((size[0] // FINER, size[1] // FINER), Image.Resampling.LANCZOS).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _paint(canvas: ImageDraw, shape: Shape, down: float) -> None:
    factor = SCALE * FINER

    def at(place: Place) -> Place:
        return place[0] * factor, (place[1] + down) * factor

    if isinstance(shape, Dot):
        (x, y), radius = at(shape.at), shape.radius * factor
        canvas.ellipse((x - radius, y - radius, x + radius, y + radius), fill=LIGHT[shape.tone])
    elif isinstance(shape, Stroke):
        color, width = _color(shape), max(1, round(shape.width * factor))
        for piece in _dashed(shape):
            canvas.line([at(place) for place in piece], fill=color, width=width, joint="curve")
            if shape.kind.startswith("curve"):
                for x, y in (at(piece[0]), at(piece[-1])):
                    canvas.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=color)
    else:
        tone = LIGHT["bad" if shape.kind == "over" else "ink" if shape.kind in ("name", "title") else "soft"]
        anchor = ANCHORS[shape.anchor] + ("m" if shape.is_centred else "s")
        font = _font((15 if shape.kind == "title" else 13) * factor)
        canvas.text(at(shape.at), shape.text, fill=tone, font=font, anchor=anchor)


def _font(size: int) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _color(shape: Stroke) -> tuple[int, ...]:
    """A tone as it looks over the ground."""
    share = next((share for kind, share in FAINT.items() if kind in shape.kind.split()), 1.0)
    if "raw" in shape.kind.split():
        share = 0.25
    parts = zip(_numbers(LIGHT[shape.tone]), _numbers(LIGHT["surface"]), strict=True)
    return tuple(round(share * ink + (1 - share) * ground) for ink, ground in parts)


def _numbers(color: str) -> list[int]:
    return [int(color[first : first + 2], 16) for first in (1, 3, 5)]


def _dashed(shape: Stroke) -> Iterator[Sequence[Place]]:
    """The pieces of a line that are drawn: all of it, or dashes along it."""
    if not shape.dashed:
        yield shape.points
        return
    on, off = DASHES[shape.kind.split()[0]]
    piece, left, draws = [shape.points[0]], on, True
    for begin, end in zip(shape.points, shape.points[1:], strict=False):
        x, y = begin
        far = math.dist(begin, end)
        while far > left:
            x, y = x + (end[0] - x) * left / far, y + (end[1] - y) * left / far
            far = math.dist((x, y), end)
            if draws:
                yield [*piece, (x, y)]
            piece, draws = [(x, y)], not draws
            left = on if draws else off
        left -= far
        piece.append(end)
    if draws and len(piece) > 1:
        yield piece
