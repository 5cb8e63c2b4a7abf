"""The drawing of a layout."""

from __future__ import annotations

from paddock.telemetry.layout_card import ProcessRow, draw_layout


def row(place: int, stages: list[int] | None = None) -> ProcessRow:
    stages = [place] if stages is None else stages
    return ProcessRow(stages, [[2 * stage, 2 * stage + 1] for stage in stages], 1_234_567, 20_000_000, 3_000_000)


def test_a_small_layout() -> None:
    assert draw_layout(2, 2, [row(0, [0, 3]), row(1, [1, 2])]) == [
        "            data 0  data 1  stage  layers   parameters  memory   sends",
        "pipeline 0  0 1     2 3     0,3    0–1,6–7  1.2M        20.0 MB  3.0 MB",
        "pipeline 1  4 5     6 7     1,2    2–3,4–5  1.2M        20.0 MB  3.0 MB",
    ]


def test_without_a_pipeline() -> None:
    assert draw_layout(2, 1, [ProcessRow([0], [[0, 0]], 10, 160, 40)]) == [
        "       data 0  data 1  stage  layers  parameters  memory  sends",
        "ranks  0       1       0      0       10          160 B   40 B",
    ]


def test_a_large_layout_fits_on_a_screen() -> None:
    lines = draw_layout(64, 8, [row(place) for place in range(32)])
    assert len(lines) == 13 and max(map(len, lines)) < 110
    assert lines[0].split()[:7] == ["data", "0", "data", "1", "…", "data", "63"]
    assert lines[1].split()[2:6] == ["0–7", "8–15", "…", "504–511"]
    assert lines[-2] == "…" and lines[-1].split()[1:6] == ["31", "15872–15879", "15880–15887", "…", "16376–16383"]
