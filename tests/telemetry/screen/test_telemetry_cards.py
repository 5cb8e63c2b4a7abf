"""The cards at both ends of a run, and the drawing of a layout."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from paddock.telemetry.screen.cards import ProcessRow, draw_layout, end_card, run_card

ROWS = [("model", "gpt2, 3.1M parameters"), ("run", "runs/" + "long-name/" * 10)]
COMMAND = 'paddock generate runs/gpt2-tiny-20260101-120000 --prompt "The [import] statement" --max-new-tokens 40'


@pytest.fixture(autouse=True)
def a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_panel_on_a_terminal() -> None:
    output = io.StringIO()
    run_card("gpt2/tiny", ROWS, console=Console(width=80, force_terminal=True, file=output, color_system=None))
    lines = output.getvalue().splitlines()
    assert lines[0].startswith("╭─ gpt2/tiny ─")
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("│ model  gpt2, 3.1M parameters ")
    assert "".join(line.strip("│ ") for line in lines[2:-1]).removeprefix("run    ") == ROWS[1][1]


def test_commands_can_be_copied_whole() -> None:
    output = io.StringIO()
    console = Console(width=60, force_terminal=True, file=output, color_system=None)
    end_card("trained", [("loss", "3.2")], [COMMAND], console=console)
    assert f"  $ {COMMAND}\n" in output.getvalue()


def test_plain_lines_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    end_card("trained", [("loss", "3.2 [nats]"), ROWS[1]], [COMMAND, "paddock report"])
    assert capsys.readouterr() == (
        "",
        f"trained\nloss: 3.2 [nats]\nrun: {ROWS[1][1]}\nnext: {COMMAND}\nnext: paddock report\n",
    )


def test_no_commands_no_heading() -> None:
    output = io.StringIO()
    end_card("trained", [("loss", "3.2")], console=Console(width=60, force_terminal=True, file=output))
    assert "next" not in output.getvalue()


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


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(("data", "places"), [(2, 1), (8, 1), (1, 2), (4, 4)])
def test_a_layout_fits_its_card(columns: int, data: int, places: int) -> None:
    """Whole words, each line as wide as the card at most; broken between words where that has to be."""
    rows = [row(place) for place in range(places)]
    output = io.StringIO()
    console = Console(width=columns, force_terminal=True, file=output, color_system=None)
    run_card("train", [("begins from", "new"), ("ranks", lambda room: "\n".join(draw_layout(data, 2, rows, room)))],
             console=console)  # fmt: skip
    shown = [line.strip("│ ") for line in output.getvalue().splitlines()]
    assert all(len(line) <= columns for line in output.getvalue().splitlines())
    inside = " ".join(shown).removeprefix("ranks ")
    assert inside.count("1.2M") == places and inside.count("20.0 MB") == places and inside.count("3.0 MB") == places
    words = " ".join(draw_layout(data, 2, rows, columns - 17)).split()
    assert set(words) <= set(inside.split()), "no word is broken"


def test_where_there_is_little_room_a_layout_says_less_or_speaks() -> None:
    assert draw_layout(2, 1, [row(0)], 60) == [
        "       data 0  data 1  parameters  memory   sends",
        "ranks  0       1       1.2M        20.0 MB  3.0 MB",
    ]
    assert draw_layout(2, 1, [row(0)], 43) == [
        "ranks 0 | 1: stage 0, layers 0–1, 1.2M parameters, 20.0 MB, sends 3.0 MB"
    ]
    _, second = draw_layout(1, 2, [row(0), row(1)], 43)
    assert second == "pipeline 1: ranks 2 3: stage 1, layers 2–3, 1.2M parameters, 20.0 MB, sends 3.0 MB"


def test_a_large_layout_fits_on_a_screen() -> None:
    lines = draw_layout(64, 8, [row(place) for place in range(32)])
    assert len(lines) == 13 and max(map(len, lines)) < 110
    assert lines[0].split()[:7] == ["data", "0", "data", "1", "…", "data", "63"]
    assert lines[1].split()[2:6] == ["0–7", "8–15", "…", "504–511"]
    assert lines[-2] == "…" and lines[-1].split()[1:6] == ["31", "15872–15879", "15880–15887", "…", "16376–16383"]
