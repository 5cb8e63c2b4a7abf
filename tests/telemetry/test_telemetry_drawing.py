"""Plots in other forms than SVG: characters of a terminal, and PNG."""

from __future__ import annotations

import re
import struct
import sys
from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from paddock.errors import MachineError
from paddock.telemetry.drawing.characters import BRAILLE, LETTERS, MARKS, Look, draw_characters
from paddock.telemetry.drawing.plots import WIDTH, Frame, Line, Mark, Plot, colored, x_ticks
from paddock.telemetry.drawing.png import SCALE, paint
from paddock.telemetry.drawing.svg import LIGHT, draw, draw_sheet

FALLING = {step: 5 / step for step in range(1, 40)}
RISING = {step: step / 8 for step in range(1, 40)}
TWO = Plot("loss", [Line("a", FALLING), Line("b", RISING, "second")])
ALONE = Plot("loss", [Line("a", FALLING)])


def drawn(plot: Plot, look: Look) -> list[str]:
    return [line.plain.rstrip() for line in draw_characters(plot, look)]


def canvas(lines: list[str], height: int) -> list[str]:
    """The rows of the curves, without the axis before them."""
    return [re.split("[│┤|]", line, maxsplit=1)[1] for line in lines[1 : 1 + height]]


def test_a_falling_curve_falls_in_dots() -> None:
    rows = canvas(drawn(ALONE, Look(60, 10)), 10)
    first = [min(at for at, sign in enumerate(row) if ord(sign) > BRAILLE) for row in rows if row.strip()]
    assert first == sorted(first) and first[0] == 0 and len(first) > 8
    last = max(at for at, sign in enumerate(rows[-1]) if ord(sign) > BRAILLE)
    assert last > 50


def test_without_colours_curves_have_marks_of_their_own() -> None:
    text = "\n".join(drawn(TWO, Look(60, 10)))
    assert MARKS[0] in text and MARKS[1] in text and f"{MARKS[0]} a" in text and f"{MARKS[1]} b" in text
    assert not re.search("[\u2801-\u28ff]", text)


def test_a_terminal_of_letters_gets_letters() -> None:
    text = "\n".join(drawn(TWO, Look(60, 10, has_unicode=False)))
    assert text.isascii() and LETTERS[0] in text and LETTERS[1] in text


def test_with_colours_all_are_dots() -> None:
    lines = draw_characters(TWO, Look(60, 10, has_colors=True))
    styles = {str(span.style) for line in lines for span in line.spans}
    assert {"cyan", "yellow"} <= styles
    assert re.search("[\u2801-\u28ff]", lines[5].plain)


@pytest.mark.parametrize("width", [20, 59, 60, 120])
@pytest.mark.parametrize("colors", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, colors: bool) -> None:
    plot = replace(TWO, marks=[Mark(20, "again")])
    assert max(cell_len(line) for line in drawn(plot, Look(width, 8, colors))[:-2]) <= width


def test_a_restart_is_a_dotted_line() -> None:
    rows = canvas(drawn(replace(ALONE, marks=[Mark(20, "again")]), Look(60, 10)), 10)
    assert sum("┊" in row for row in rows) >= 8


numbers = st.floats() | st.sampled_from([0.0, 1e-320, 1e308, -1e308, float("nan"), float("inf")])


@given(
    st.lists(st.dictionaries(st.integers(0, 2**63 - 1), numbers, max_size=8), min_size=1, max_size=3),
    st.booleans(),
    st.integers(1, 90),
    st.booleans(),
)
def test_any_numbers_can_be_drawn(values: list[dict[int, float]], logarithmic: bool, width: int, color: bool) -> None:
    plot = Plot("any", [Line("a", one) for one in values], is_logarithmic=logarithmic)
    lines = drawn(plot, Look(width, 5, color))
    assert len(lines) == 1 + 5 + 2 + len(values)


def pixels(data: bytes) -> tuple[tuple[int, int], dict[tuple[int, int, int], int]]:
    from PIL import Image

    image = Image.open(BytesIO(data)).convert("RGB")
    return image.size, {color: count for count, color in image.getcolors(2**24) or []}


def rgb(tone: str) -> tuple[int, int, int]:
    return tuple(int(LIGHT[tone][at : at + 2], 16) for at in (1, 3, 5))  # type: ignore[return-value]


def test_a_png_has_the_curves_in_their_colours() -> None:
    pytest.importorskip("PIL")
    data = paint([TWO])
    assert struct.unpack(">II", data[16:24]) == (WIDTH * SCALE, TWO.height * SCALE)
    size, colors = pixels(data)
    assert colors[rgb("first")] > 40 and colors[rgb("second")] > 40
    assert colors[rgb("surface")] > 0.8 * size[0] * size[1]
    assert rgb("third") not in colors


def test_plots_under_each_other_are_as_high_as_they_are_together() -> None:
    pytest.importorskip("PIL")
    (_, height), _ = pixels(paint([TWO, ALONE]))
    assert height == (TWO.height + ALONE.height) * SCALE
    assert f'viewBox="0 0 {WIDTH} {TWO.height + ALONE.height}"' in draw_sheet([TWO, ALONE])


def test_dashes_and_marks_are_painted() -> None:
    pytest.importorskip("PIL")
    whole = pixels(paint([ALONE]))[1][rgb("first")]
    dashed = pixels(paint([Plot("loss", [Line("a", FALLING, dashed=True)])]))[1][rgb("first")]
    assert 0.3 * whole < dashed < 0.9 * whole
    marked = pixels(paint([replace(ALONE, marks=[Mark(20, "again", "second")])]))[1]
    assert sum(count for (red, _, blue), count in marked.items() if red - blue > 50) > 100  # orange, and its edges


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MachineError, match="Pillow") as caught:
        paint([ALONE])
    assert "pip install" in caught.value.fix


def test_names_of_many_curves_take_several_rows() -> None:
    many = Plot("loss", [Line(f"a rather long name {number}", FALLING, *colored(number)[:1]) for number in range(9)])
    assert many.height > ALONE.height
    svg = draw(many)
    assert all(f"name {number}</text>" in svg for number in range(9))


def test_later_tones_are_dashed() -> None:
    assert colored(0) == ("first", False) and colored(8) == ("first", True)


@pytest.mark.parametrize(
    "longest, names",
    [(100, [0, 30, 60, 90]), (7000, [0, 1800, 3600, 5400]), (4e5, [0, 86400, 172800, 259200])],
)
def test_times_are_round_as_clocks_are(longest: float, names: list[float]) -> None:
    plot = Plot("loss", [Line("a", {0.0: 1.0, float(longest): 2.0})], counts_time=True)
    assert x_ticks(plot, Frame.around(plot), 5)[:4] == names
