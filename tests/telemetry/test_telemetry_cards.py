import io

import pytest
from rich.console import Console

from paddock.telemetry.cards import end_card, run_card

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
