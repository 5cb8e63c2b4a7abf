"""Plots and pages: they show what is there, need nothing else, and take any numbers and names."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.telemetry.drawing import pages
from paddock.telemetry.drawing.plots import HEIGHT, LEFT, WIDTH, Line, Plot, ticks
from paddock.telemetry.drawing.svg import draw

FALLING = {step: 5 / step for step in range(1, 40)}


def parts(svg: str, kind: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)  # noqa: S314 - our own
    return [element for element in root.iter() if element.tag.rpartition("}")[2] == kind]


def points(svg: str) -> list[list[tuple[float, float]]]:
    lines = [element.attrib["points"].split() for element in parts(svg, "polyline")]
    return [[(float(x), float(y)) for x, y in (pair.split(",") for pair in line)] for line in lines]


def test_a_falling_curve_falls() -> None:
    ((first, *_, last),) = points(draw(Plot("loss", [Line("run", FALLING)])))
    assert first[0] == LEFT and last[0] > first[0] and last[1] > first[1]  # SVG counts from above


def test_two_curves_are_told_apart() -> None:
    svg = draw(Plot("loss", [Line("run", FALLING), Line("reference", FALLING, "second", "wide")]))
    assert ["wide" in element.attrib["class"] for element in parts(svg, "polyline")] == [True, False]  # one beneath
    assert {element.text for element in parts(svg, "text")} >= {"run", "reference", "step"}


def test_a_spike_among_very_many_steps_is_seen() -> None:
    values = {step: 1.0 for step in range(100_000)} | {54_321: 9.0}
    ((*line,),) = points(draw(Plot("loss", [Line("run", values)])))
    assert len(line) < 4 * WIDTH
    top = min(y for _, y in line)
    assert [round(x) for x, y in line if y == top] == [round(LEFT + (WIDTH - LEFT - 18) * 0.54321)]


def test_a_number_that_is_none_leaves_a_gap() -> None:
    svg = draw(Plot("loss", [Line("run", {1: 1.0, 2: 2.0, 3: math.nan, 4: 2.0, 5: math.inf, 6: 1.0, 7: 3.0})]))
    assert [len(piece) for piece in points(svg)] == [2, 2] and len(parts(svg, "circle")) == 1


def test_a_logarithmic_axis_takes_zeros_and_shows_a_limit() -> None:
    plot = Plot("error", [Line("error", {1: 0.0, 2: 1e-6, 3: 0.5})], is_logarithmic=True, limit=0.01, limit_name="1 %")
    svg = draw(plot)
    ((ground, _, top),) = points(svg)
    (limit,) = [float(one.attrib["y1"]) for one in parts(svg, "line") if one.attrib["class"] == "limit"]
    assert ground[1] > limit > top[1]
    assert "1 %" in {element.text for element in parts(svg, "text")}


numbers = st.floats() | st.sampled_from([0.0, 1e-320, 1e308, -1e308, math.nan, math.inf])


@given(st.lists(st.dictionaries(st.integers(0, 2**63 - 1), numbers, max_size=8), max_size=3), st.booleans(), st.text())
def test_any_numbers_and_names_make_a_valid_plot(values: list[dict[int, float]], logarithmic: bool, name: str) -> None:
    name = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "", name)  # XML has no others
    svg = draw(Plot(name, [Line(name, one) for one in values], is_logarithmic=logarithmic), is_alone=True)
    for line in points(svg):
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in line)
    assert "nan" not in "".join(element.get("points", "") for element in parts(svg, "polyline"))


@pytest.mark.parametrize("low, high", [(0, 1), (1, 40), (-3.5, 7.2), (1e-9, 2e-9), (0, 1e12), (5.4, 5.41)])
def test_ticks_are_few_round_and_inside(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    assert all(low <= tick <= high for tick in found)


class Outside(HTMLParser):
    """Whatever a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [tag] if tag in ("script", "link", "img", "iframe", "object", "form") else []
        self.found += [name for name, _ in attributes if name in ("src", "href") or name.startswith("on")]


def outside(page: str) -> list[str]:
    parser = Outside()
    parser.feed(page)
    return parser.found + re.findall(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)


def test_a_page_is_whole_in_itself_and_runs_nothing() -> None:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    body = [
        pages.badge(evil, "bad"),
        pages.heading(evil),
        pages.paragraph(evil),
        pages.tiles([(evil, evil, evil, "good")]),
        pages.table([evil], [[evil, (evil, "bad")]]),
        pages.bullets([evil]),
        pages.figure(draw(Plot(evil, [Line(evil, FALLING)], limit=1.0, limit_name=evil))),
    ]
    page = pages.page(evil, body, footer=evil)
    assert outside(page) == [] and "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page and "@media print" in page and "width=device-width" in page


def test_what_a_page_would_fetch_is_found() -> None:
    assert outside('<script src="x"></script><style>@import "y"</style>') == ["script", "src", "@import"]
