"""What a plot is, and where everything in it lies: its curves, axes, names and marks as shapes.

`svg.py` writes the shapes as SVG, `png.py` paints them, `characters.py` draws the same plot on a terminal. A curve may
have any number of points: of those that share a column of the screen, no more are kept than can be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.telemetry.format import count

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 86, 18, 44, 48
ROW = 21
"""Height of a row of names above a plot."""
LARGEST = 1e300
LEGEND = 52
"""Characters of the names in a row, together."""
TICKS = 6
SPANS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two names on an axis of time."""
Tone = Literal["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "soft"]
TONES: tuple[Tone, ...] = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
"""Of curves, in their order; then they begin again, dashed."""
WIDTHS = {"usual": 1.8, "wide": 6.0, "thin": 1.0}
Points = Mapping[int, float] | Mapping[float, float]
Place = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A curve. One that is wide lies beneath: where another agrees with it, that runs along its middle."""

    name: str
    points: Points
    tone: Tone = "first"
    width: Literal["usual", "wide", "thin"] | float = "usual"
    """In words, or in units of the plot."""
    dashed: bool = False
    kind: str = ""
    """What it is for the page that it is on: words by which it is shown or hidden."""

    @property
    def thickness(self) -> float:
        return WIDTHS[self.width] if isinstance(self.width, str) else self.width


@dataclass(frozen=True)
class Mark:
    """A vertical line where something happened."""

    x: float
    name: str
    tone: Tone = "soft"
    kind: str = ""


@dataclass(frozen=True)
class Plot:
    """Curves over the same axis. On a logarithmic axis a value that is not positive lies on the ground."""

    title: str
    lines: Sequence[Line]
    y_format: Callable[[float], str] = lambda value: f"{value:.4g}"
    is_logarithmic: bool = False
    limit: float | None = None
    """A horizontal line, beyond which values are bad."""
    limit_name: str = ""
    x_name: str = "step"
    counts_time: bool = False
    """Whether the axis is of seconds, which make round numbers of minutes and hours."""
    x_format: Callable[[float], str] = lambda step: f"{int(step):,}" if step < 100_000 else count(step)
    marks: Sequence[Mark] = ()
    has_legend: bool = True
    shows_title: bool = False

    @property
    def legend_rows(self) -> list[list[Line]]:
        """The curves that are named above the plot, row by row: as many in a row as have room for their names."""
        if not self.has_legend:
            return []
        named = [line for line in self.lines if line.name]
        longest = max((len(line.name) for line in named), default=1)
        across = max(1, min(len(named), 4, LEGEND // max(longest, 1)) if len(named) > 2 else len(named))
        return [named[first : first + across] for first in range(0, len(named), across)]

    @property
    def top(self) -> int:
        """Where the curves begin, under title and names."""
        rows = len(self.legend_rows)
        return TOP + ROW * (max(rows - 1, 0) + self.shows_title) - (0 if self.has_legend else ROW)

    @property
    def height(self) -> int:
        return HEIGHT + self.top - TOP


def colored(number: int) -> tuple[Tone, bool]:
    """The tone of the curve of a number, and whether it is dashed."""
    return TONES[number % len(TONES)], number >= len(TONES)


@dataclass(frozen=True)
class Stroke:
    """A line through points."""

    points: Sequence[Place]
    kind: str
    tone: str
    width: float
    dashed: bool = False
    name: str = ""


@dataclass(frozen=True)
class Dot:
    """A point of a curve that has no neighbours."""

    at: Place
    tone: str
    radius: float = 3.0
    kind: str = ""


@dataclass(frozen=True)
class Words:
    """A text; `middle` of its height rather than its foot is at the place, if that is wanted."""

    at: Place
    text: str
    kind: str = ""
    anchor: Literal["start", "middle", "end"] = "start"
    is_centred: bool = False


Shape = Stroke | Dot | Words


def shapes(plot: Plot) -> list[Shape]:
    """All of a plot, in the order in which it is drawn."""
    frame = Frame.around(plot)
    found: list[Shape] = [*_grid(frame, plot), *_marks(frame, plot)]
    for line in sorted(plot.lines, key=lambda one: -one.thickness if one.thickness != WIDTHS["thin"] else -math.inf):
        found += _curve(frame, line)
    return [*found, *_limit(frame, plot), *_legend(plot)]


@dataclass(frozen=True)
class Frame:
    """The ranges of both axes, and where a value is drawn."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    """Of exponents, on a logarithmic axis."""
    is_logarithmic: bool
    top: float = TOP
    height: float = HEIGHT

    @classmethod
    def around(cls, plot: Plot) -> Frame:
        steps = [step for line in plot.lines for step in line.points]
        values = [_bounded(value) for line in plot.lines for value in line.points.values() if math.isfinite(value)]
        values += [plot.limit] if plot.limit is not None else []
        if plot.is_logarithmic:
            exponents = [math.log10(value) for value in values if value > 0] or [0.0]
            lowest = math.floor(min(exponents))
            y_range: tuple[float, float] = lowest, max(math.ceil(max(exponents)), lowest + 1)
        else:
            y_range = _widened(min(values, default=0.0), max(values, default=1.0))
        x_range = _widened(min(steps, default=0), max(steps, default=1), 0.0)
        return cls(x_range, y_range, plot.is_logarithmic, plot.top, plot.height)

    @property
    def ground(self) -> float:
        return self.height - BOTTOM

    def x(self, step: float) -> float:
        low, high = self.x_range
        return LEFT + (WIDTH - LEFT - RIGHT) * ((step - low) / (high - low))

    def y(self, value: float) -> float:
        return self.ground - (self.ground - self.top) * self.share(value)

    def share(self, value: float) -> float:
        """How high a value is between the ends of its axis, from 0 to 1."""
        (low, high), value = self.y_range, _bounded(value)
        if self.is_logarithmic:
            value = math.log10(value) if value > 0 else low
        return (value - low) / (high - low)

    def y_ticks(self, most: int = TICKS) -> list[float]:
        if not self.is_logarithmic:
            return ticks(*self.y_range, most)
        low, high = (int(bound) for bound in self.y_range)
        return [10.0**exponent for exponent in range(low, high + 1, max(1, math.ceil((high - low) / most)))]


def _bounded(value: float) -> float:
    """A number whose distance from any other is one."""
    return min(max(value, -LARGEST), LARGEST)


def _widened(low: float, high: float, by: float = 0.04) -> tuple[float, float]:
    """A range with some room, that is never empty."""
    size = max(abs(low), abs(high))
    if high - low > size * 1e-9:  # less is rounding
        return low - (high - low) * by, high + (high - low) * by
    room = size * 0.05 if size > 1e-12 else 0.5
    return low - room, high + room


def ticks(low: float, high: float, most: int = TICKS) -> list[float]:
    """Round numbers in a range."""
    rough = (high - low) / most
    if not (math.isfinite(rough) and rough > 0):
        return []
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(number * step, 12) if step < 1 else number * step for number in range(first, last + 1)]


def x_ticks(plot: Plot, frame: Frame, most: int) -> list[float]:
    """Round numbers of whatever the horizontal axis counts."""
    low, high = frame.x_range
    if not plot.counts_time or high - low > most * SPANS[-1]:
        return ticks(low, high, most)
    span = next(span for span in SPANS if span * most >= high - low)
    return [float(number * span) for number in range(math.ceil(low / span), math.floor(high / span) + 1)]


def _grid(frame: Frame, plot: Plot) -> Iterator[Shape]:
    right, before = WIDTH - RIGHT, ""
    for value in frame.y_ticks():
        height, name = frame.y(value), plot.y_format(value)
        yield Stroke([(LEFT, height), (right, height)], "grid", "line", 1)
        if name != before:  # values that are closer than their names can tell
            yield Words((LEFT - 8, height), name, anchor="end", is_centred=True)
        before = name
    yield Stroke([(LEFT, frame.ground), (right, frame.ground)], "axis", "soft", 1)
    for step in x_ticks(plot, frame, 5):
        if step == int(step):
            yield Words((frame.x(step), frame.ground + 20), plot.x_format(step), anchor="middle")
    yield Words((right, plot.height - 6), plot.x_name, anchor="end")


def _marks(frame: Frame, plot: Plot) -> Iterator[Shape]:
    for mark in plot.marks:
        if frame.x_range[0] <= mark.x <= frame.x_range[1]:
            place = frame.x(mark.x)
            kind = f"mark {mark.kind}".rstrip()
            yield Stroke([(place, frame.top), (place, frame.ground)], kind, mark.tone, 1.2, True, mark.name)


def _limit(frame: Frame, plot: Plot) -> Iterator[Shape]:
    if plot.limit is not None:
        place = frame.y(plot.limit)
        yield Stroke([(LEFT, place), (WIDTH - RIGHT, place)], "limit", "bad", 1.2, True)
        beside = place + 20 if place < frame.top + 20 else place - 7  # above the line, if there is room
        yield Words((LEFT + 6, beside), plot.limit_name, "over")


def _curve(frame: Frame, line: Line) -> Iterator[Shape]:
    for piece in _pieces(frame, line.points):
        if len(piece) == 1:
            yield Dot(piece[0], line.tone, max(3.0, line.thickness / 1.6), line.kind)
        else:
            yield Stroke(piece, _kind(line), line.tone, line.thickness, line.dashed, line.name)


def _kind(line: Line) -> str:
    width = line.width if isinstance(line.width, str) else "sized"
    return f"curve {width} {line.kind}".rstrip()


def _pieces(frame: Frame, points: Points) -> list[list[Place]]:
    """The curve between values that are none, with no more points than can be seen: of those that share a column of
    the screen, the first, the lowest, the highest and the last."""
    pieces: list[list[Place]] = [[]]
    column: list[Place] = []

    def finish() -> None:
        if column:
            order = sorted(range(len(column)), key=lambda at: column[at][1])
            pieces[-1].extend(column[at] for at in sorted({0, order[0], order[-1], len(column) - 1}))
            column.clear()

    for step, value in points.items():
        if not math.isfinite(value):
            finish()
            if pieces[-1]:
                pieces.append([])
            continue
        place = frame.x(step), frame.y(value)
        if column and int(column[0][0]) != int(place[0]):
            finish()
        column.append(place)
    finish()
    return [piece for piece in pieces if piece]


def _legend(plot: Plot) -> Iterator[Shape]:
    """Names beside a piece of each curve, above the plot, from the left; the title above them."""
    first = 20 + ROW * plot.shows_title
    if plot.shows_title:
        yield Words((LEFT, 22), plot.title, "title")
    for row, lines in enumerate(plot.legend_rows):
        width = (WIDTH - LEFT - RIGHT) / len(plot.legend_rows[0])
        height = first + ROW * row
        for number, line in enumerate(lines):
            left = LEFT + number * width
            thickness = min(line.thickness, 12.0)
            yield Stroke([(left, height), (left + 24, height)], _kind(line), line.tone, thickness, line.dashed)
            yield Words((left + 32, height + 5), _shortened(line.name, LEGEND // len(plot.legend_rows[0])), "name")


def _shortened(name: str, longest: int) -> str:
    """The end of a long name, which tells runs apart."""
    return name if len(name) <= longest else "…" + name[1 - longest :]
