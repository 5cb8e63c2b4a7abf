"""Plots as SVG that needs nothing else: for reports that open anywhere, in light and dark, and on paper.

Colours are variables, which `STYLE` sets: a page has it once, a plot in a file of its own brings it along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from paddock.telemetry.drawing.plots import WIDTH, Dot, Plot, Shape, Stroke, shapes

LIGHT = {
    **{"surface": "#fcfcfb", "ink": "#1b1c1e", "soft": "#6b6f76", "line": "#dcdee1"},
    **{"first": "#0b62c4", "second": "#e07a10", "third": "#14804a", "fourth": "#8a4fc7"},
    **{"fifth": "#c2255c", "sixth": "#0c8599", "seventh": "#866118", "eighth": "#495057"},
    **{"bad": "#b3261e", "good": "#14804a"},
}
DARK = {
    **{"surface": "#16181b", "ink": "#e8e9eb", "soft": "#9aa0a8", "line": "#33373d"},
    **{"first": "#6fb1ff", "second": "#f0a24c", "third": "#5cc98d", "fourth": "#c39bf0"},
    **{"fifth": "#f783ac", "sixth": "#66d9e8", "seventh": "#e0c080", "eighth": "#ced4da"},
    **{"bad": "#ff8a80", "good": "#5cc98d"},
}
PAPER = LIGHT | {"surface": "#fff", "ink": "#000", "soft": "#444", "line": "#bbb", "second": "#b45309"}


def _variables(palette: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {color};" for name, color in palette.items())


STYLE = f"""
:root {{ color-scheme: light dark; {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
@media print {{ :root {{ color-scheme: light; {_variables(PAPER)} }} }}
.plot {{ display: block; width: 100%; height: auto; font: 13px system-ui, sans-serif; }}
.plot text {{ fill: var(--soft); }} .plot .name {{ fill: var(--ink); }}
.plot .title {{ fill: var(--ink); font-weight: 600; font-size: 15px; }}
.plot .grid {{ stroke: var(--line); stroke-width: 1; }} .plot .axis {{ stroke: var(--soft); stroke-width: 1; }}
.plot .curve {{ fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }}
.plot .wide {{ stroke-width: 6; stroke-opacity: 0.45; }} .plot .thin {{ stroke-width: 1; stroke-opacity: 0.7; }}
.plot .limit {{ stroke: var(--bad); stroke-width: 1.2; stroke-dasharray: 5 4; }} .plot .over {{ fill: var(--bad);
  paint-order: stroke; stroke: var(--surface); stroke-width: 5px; }}
.plot .mark {{ stroke-width: 1.2; stroke-dasharray: 2 4; }} .plot .dashed {{ stroke-dasharray: 7 4; }}
@media (max-width: 560px) {{ .plot {{ font-size: 21px; }} .plot .curve {{ stroke-width: 2.6; }}
  .plot .wide {{ stroke-width: 9; }} .plot .mark {{ stroke-width: 2; }} }}
"""
"""For plots, and for the pages that they are on."""


def draw(plot: Plot, *, is_alone: bool = False) -> str:
    """The plot as an SVG element; alone, as a whole file."""
    if is_alone:
        return draw_sheet([plot])
    return f"{_head(plot.title, plot.height)}>{_content(plot)}</svg>"


def draw_sheet(plots: Sequence[Plot]) -> str:
    """Plots under each other, as a whole file."""
    parts, height = [], 0
    for plot in plots:
        parts.append(f'<g transform="translate(0,{height})">{_content(plot)}</g>' if height else _content(plot))
        height += plot.height
    ground = f'<rect width="{WIDTH}" height="{height}" fill="var(--surface)"/>'
    style = f"<style>{STYLE.replace(':root', '.plot')}</style>"
    title = ", ".join(plot.title for plot in plots)
    return f'{_head(title, height)} xmlns="http://www.w3.org/2000/svg">{style}{ground}{"".join(parts)}</svg>\n'


def _head(title: str, height: int) -> str:
    return f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}"'


def _content(plot: Plot) -> str:
    return "".join([f"<title>{escape(plot.title)}</title>", *map(_element, shapes(plot))])


def _element(shape: Shape) -> str:
    return "".join(_parts(shape))


def _parts(shape: Shape) -> Iterator[str]:
    if isinstance(shape, Dot):
        kind = f' class="{shape.kind}"' if shape.kind else ""
        x, y = shape.at
        yield f'<circle{kind} cx="{x:.1f}" cy="{y:.1f}" r="{shape.radius:g}" fill="var(--{shape.tone})"/>'
    elif isinstance(shape, Stroke):
        yield _stroke(shape)
    else:
        x, y = shape.at
        yield f'<text x="{x:.1f}" y="{y:.1f}"'
        yield f' class="{shape.kind}"' if shape.kind else ""
        yield f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
        yield ' dominant-baseline="middle"' if shape.is_centred else ""
        yield f">{escape(shape.text)}</text>"


def _stroke(shape: Stroke) -> str:
    kind, color = shape.kind, ""
    if kind not in ("grid", "axis", "limit"):
        kind += " dashed" if shape.dashed and kind.startswith("curve") else ""
        color = f' stroke="var(--{shape.tone})"'
        color += f' style="stroke-width:{shape.width:g}"' if " sized" in kind else ""
    name = f"<title>{escape(shape.name)}</title>" if shape.name else ""
    if len(shape.points) == 2 and not (kind.startswith("curve") and name):
        (x1, y1), (x2, y2) = shape.points
        where = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"'
        return f'<line class="{kind}"{color} {where}' + (f">{name}</line>" if name else "/>")
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
    return f'<polyline class="{kind}"{color} points="{path}">{name}</polyline>'
