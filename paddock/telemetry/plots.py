"""Plots of numbers by step, as SVG that needs nothing else: for reports that open anywhere, in light and dark.

Colours are variables, which `STYLE` sets: a page has it once, a plot in a file of its own brings it along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from paddock.telemetry.format import count

STYLE = """
:root { color-scheme: light dark; --surface: #fcfcfb; --ink: #1b1c1e; --soft: #6b6f76; --line: #dcdee1;
  --first: #0b62c4; --second: #e07a10; --third: #14804a; --fourth: #8a4fc7; --bad: #b3261e; --good: #14804a; }
@media (prefers-color-scheme: dark) { :root { --surface: #16181b; --ink: #e8e9eb; --soft: #9aa0a8; --line: #33373d;
  --first: #6fb1ff; --second: #f0a24c; --third: #5cc98d; --fourth: #c39bf0; --bad: #ff8a80; --good: #5cc98d; } }
@media print { :root { color-scheme: light; --surface: #fff; --ink: #000; --soft: #444; --line: #bbb;
  --first: #0b62c4; --second: #b45309; --third: #14804a; --fourth: #6d28d9; --bad: #b3261e; --good: #14804a; } }
.plot { display: block; width: 100%; height: auto; font: 13px system-ui, sans-serif; }
.plot text { fill: var(--soft); } .plot .name { fill: var(--ink); }
.plot .grid { stroke: var(--line); stroke-width: 1; } .plot .axis { stroke: var(--soft); stroke-width: 1; }
.plot .curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.plot .wide { stroke-width: 6; stroke-opacity: 0.45; } .plot .thin { stroke-width: 1; stroke-opacity: 0.7; }
.plot .limit { stroke: var(--bad); stroke-width: 1.2; stroke-dasharray: 5 4; } .plot .over { fill: var(--bad);
  paint-order: stroke; stroke: var(--surface); stroke-width: 5px; }
@media (max-width: 560px) { .plot { font-size: 21px; } .plot .curve { stroke-width: 2.6; }
  .plot .wide { stroke-width: 9; } }
"""
"""For plots, and for the pages that they are on."""
WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 86, 18, 44, 48
LARGEST = 1e300
LEGEND = 52
"""Characters of the names above a plot, together."""
Tone = Literal["first", "second", "third", "fourth", "soft"]


@dataclass(frozen=True)
class Line:
    """A curve. One that is wide lies beneath: where another agrees with it, that runs along its middle."""

    name: str
    points: Mapping[int, float]
    tone: Tone = "first"
    width: Literal["usual", "wide", "thin"] = "usual"

    @property
    def shape(self) -> str:
        """The attributes of what is drawn."""
        return f'class="curve {self.width}" stroke="var(--{self.tone})"'


@dataclass(frozen=True)
class Plot:
    """Curves over the same steps. On a logarithmic axis a value that is not positive lies on the ground."""

    title: str
    lines: Sequence[Line]
    y_format: Callable[[float], str] = lambda value: f"{value:.4g}"
    is_logarithmic: bool = False
    limit: float | None = None
    """A horizontal line, beyond which values are bad."""
    limit_name: str = ""


def draw(plot: Plot, *, is_alone: bool = False) -> str:
    """The plot as an SVG element; alone, as a whole file."""
    frame = _Frame.around(plot)
    parts = [f"<title>{escape(plot.title)}</title>", *_grid(frame, plot)]
    for line in sorted(plot.lines, key=lambda one: one.width == "usual"):
        parts += _curve(frame, line)
    parts += [*_limit(frame, plot), *_legend(plot.lines)]
    head = f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(plot.title)}"'
    if not is_alone:
        return head + ">" + "".join(parts) + "</svg>"
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="var(--surface)"/>'
    style = f"<style>{STYLE.replace(':root', '.plot')}</style>"
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{ground}{"".join(parts)}</svg>\n'


@dataclass(frozen=True)
class _Frame:
    """The ranges of both axes, and where a value is drawn."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    """Of exponents, on a logarithmic axis."""
    is_logarithmic: bool

    @classmethod
    def around(cls, plot: Plot) -> _Frame:
        steps = [step for line in plot.lines for step in line.points]
        values = [_bounded(value) for line in plot.lines for value in line.points.values() if math.isfinite(value)]
        values += [plot.limit] if plot.limit is not None else []
        if plot.is_logarithmic:
            exponents = [math.log10(value) for value in values if value > 0] or [0.0]
            lowest = math.floor(min(exponents))
            y_range: tuple[float, float] = lowest, max(math.ceil(max(exponents)), lowest + 1)
        else:
            y_range = _widened(min(values, default=0.0), max(values, default=1.0))
        return cls(_widened(min(steps, default=0), max(steps, default=1), 0.0), y_range, plot.is_logarithmic)

    def x(self, step: float) -> float:
        low, high = self.x_range
        return LEFT + (WIDTH - LEFT - RIGHT) * ((step - low) / (high - low))

    def y(self, value: float) -> float:
        (low, high), value = self.y_range, _bounded(value)
        if self.is_logarithmic:
            value = math.log10(value) if value > 0 else low
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ((value - low) / (high - low))


def _bounded(value: float) -> float:
    """A number whose distance from any other is one."""
    return min(max(value, -LARGEST), LARGEST)


def _widened(low: float, high: float, by: float = 0.04) -> tuple[float, float]:
    """A range with some room, that is never empty."""
    room = (high - low) * by if high > low else max(abs(high) * 0.05, 0.5)
    return low - room, high + room


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers in a range."""
    rough = (high - low) / most
    if not (math.isfinite(rough) and rough > 0):
        return []
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(number * step, 12) if step < 1 else number * step for number in range(first, last + 1)]


def _grid(frame: _Frame, plot: Plot) -> Iterator[str]:
    if plot.is_logarithmic:
        low, high = (int(bound) for bound in frame.y_range)
        every = max(1, math.ceil((high - low) / 6))
        values = [10.0**exponent for exponent in range(low, high + 1, every)]
    else:
        values = ticks(*frame.y_range)
    for value in values:
        place = f"{frame.y(value):.1f}"
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place}" y2="{place}"/>'
        name = escape(plot.y_format(value))
        yield f'<text x="{LEFT - 8}" y="{place}" text-anchor="end" dominant-baseline="middle">{name}</text>'
    ground = HEIGHT - BOTTOM
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{ground}" y2="{ground}"/>'
    for step in ticks(*frame.x_range, most=5):
        if step == int(step):
            yield f'<text x="{frame.x(step):.1f}" y="{ground + 20}" text-anchor="middle">{_step_name(step)}</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">step</text>'


def _step_name(step: float) -> str:
    return f"{int(step):,}" if step < 100_000 else count(step)


def _limit(frame: _Frame, plot: Plot) -> Iterator[str]:
    if plot.limit is not None:
        place = frame.y(plot.limit)
        yield f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'
        beside = place + 20 if place < TOP + 20 else place - 7  # above the line, if there is room
        yield f'<text class="over" x="{LEFT + 6}" y="{beside:.1f}">{escape(plot.limit_name)}</text>'


def _curve(frame: _Frame, line: Line) -> Iterator[str]:
    for piece in _pieces(frame, line.points):
        if len(piece) == 1:
            x, y = piece[0]
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="var(--{line.tone})"/>'
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in piece)
            yield f'<polyline {line.shape} points="{path}"><title>{escape(line.name)}</title></polyline>'


def _pieces(frame: _Frame, points: Mapping[int, float]) -> list[list[tuple[float, float]]]:
    """The curve between values that are none, with no more points than can be seen: of those that share a column of
    the screen, the first, the lowest, the highest and the last."""
    pieces: list[list[tuple[float, float]]] = [[]]
    column: list[tuple[float, float]] = []

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


def _legend(lines: Sequence[Line]) -> Iterator[str]:
    """Names beside a piece of each curve, above the plot, from the left."""
    width = (WIDTH - LEFT - RIGHT) / max(len(lines), 1)
    for number, line in enumerate(lines):
        left = LEFT + number * width
        yield f'<line {line.shape} x1="{left:.1f}" x2="{left + 24:.1f}" y1="20" y2="20"/>'
        name = escape(_shortened(line.name, LEGEND // len(lines)))
        yield f'<text class="name" x="{left + 32:.1f}" y="25">{name}</text>'


def _shortened(name: str, longest: int) -> str:
    """The end of a long name, which tells runs apart."""
    return name if len(name) <= longest else "…" + name[1 - longest :]
