import io
import math
import os
import re
import subprocess
import sys
import warnings

import pytest
from rich.console import Console

from paddock.phases import phase
from paddock.telemetry.screen.console import ConsoleSink, Sparkline
from paddock.telemetry.stream import Value

METRICS: dict[str, Value] = {
    "train.loss": 5.81234,
    "train.lr": 3e-4,
    "train.grad_norm": 1.234,
    "train.ips": 194.2,
    "train.tokens_per_second": 24900.0,
    "train.utilisation": 0.253,
    "train.achieved_flops": 2.55e11,
    "train.step_time": 0.0824,
    "train.data_time": 0.0021,
    "train.memory": 1.2e9,
}


@pytest.fixture(autouse=True)
def no_terminal_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def terminal(width: int) -> Console:
    return Console(width=width, force_terminal=True, file=io.StringIO(), color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def final_screen(console: Console) -> list[str]:
    """What stays on the terminal, once cursor movements and erasures have been obeyed."""
    rows, row = [""], 0
    text = written(console).replace("\r\n", "\n")
    position = 0
    while position < len(text):
        if text.startswith("\x1b[", position):
            end = position + 2
            while not text[end].isalpha():
                end += 1
            argument, command = text[position + 2 : end], text[end]
            if command == "A":
                row -= int(argument or 1)
            elif command == "K":
                rows[row] = ""
            position = end + 1
            continue
        if text[position] == "\n":
            row += 1
            if row == len(rows):
                rows.append("")
        elif text[position] != "\r":
            rows[row] += text[position]
        position += 1
    return [line.rstrip() for line in rows if line.strip()]


@pytest.mark.parametrize("width", [50, 80, 120, 200])
def test_live_lines_fit_the_terminal(width: int) -> None:
    console = terminal(width)
    sink = ConsoleSink(300, title="gpt2/tiny", console=console)
    for step in range(1, 121):
        sink.tick(step)
        if step % 10 == 0:
            sink.log((0, step), METRICS)
    sink.close()
    screen = final_screen(console)
    assert len(screen) == 2
    assert all(len(line) <= width for line in screen)
    assert screen[0].startswith("gpt2/tiny  ━")
    assert "120/300" in screen[0]
    assert "40%" in screen[0]
    assert "eta" in screen[0]
    assert screen[1].startswith("loss 5.8123")


def test_everything_that_matters_fits_eighty_columns() -> None:
    console = terminal(80)
    sink = ConsoleSink(300, console=console)
    sink.log((0, 10), METRICS)
    sink.close()
    metrics = final_screen(console)[1]
    assert metrics == "loss 5.8123  lr 3.00e-04  grad 1.23  samples/s 194  tokens/s 24.9k  util 25%"


def test_a_wide_terminal_shows_more_and_the_course_of_the_loss() -> None:
    console = terminal(200)
    sink = ConsoleSink(300, console=console)
    for step in range(10, 60, 10):
        sink.log((0, step), METRICS | {"train.loss": 9.0 - step / 10})
    sink.close()
    metrics = final_screen(console)[1]
    assert metrics.startswith("loss 4.0000 █▆▅▃▁")
    assert metrics.endswith("achieved 255GFLOP/s  step 82.4ms  data 2.1ms  mem 1.2GB")


def test_ticks_move_the_bar_between_records() -> None:
    console = terminal(80)
    sink = ConsoleSink(300, console=console)
    sink.log((0, 10), METRICS)
    sink.tick(17)
    sink.close()
    assert " 17/300" in final_screen(console)[0]


def test_a_resumed_run_begins_where_it_left_off_and_a_long_title_leaves_room() -> None:
    console = terminal(80)
    sink = ConsoleSink(300, title="a-recipe/with-a-rather-long-name", start_step=100, console=console)
    sink.tick(0)
    sink.close()
    bar = final_screen(console)[0]
    assert bar.startswith("a-recipe/with-a-rather-…  ━")
    assert "100/300" in bar


@pytest.mark.parametrize("start", [0, 7])
def test_the_first_step_has_its_bar_from_the_beginning(start: int) -> None:
    console = terminal(80)
    sink = ConsoleSink(300, start_step=start, console=console)
    sink.tick(start)
    bar, under_it = final_screen(console)
    assert f" {start}/300" in bar and under_it == "the first steps are under way …"
    sink.close()


def test_the_first_step_has_a_line_off_a_terminal() -> None:
    console = Console(width=80, force_terminal=False, file=io.StringIO())
    sink = ConsoleSink(300, start_step=7, console=console)
    sink.tick(7)
    sink.tick(8, {"train.loss": 3.0})
    sink.close()
    sink.close()
    assert written(console) == "training: step 8 of 300\n"


def test_the_end_is_shown_as_the_end() -> None:
    console = terminal(80)
    sink = ConsoleSink(30, console=console)
    sink.log((0, 30), METRICS)
    sink.close()
    bar = final_screen(console)[0]
    assert "30/30  done" in bar
    assert "eta" not in bar


def test_validation_messages_and_warnings_stand_above_the_bar() -> None:
    console = terminal(80)
    sink = ConsoleSink(300, console=console)
    sink.log((0, 100), METRICS)
    sink.log((0, 100), {"val.loss": 4.21, "val.perplexity": 67.4})
    sink.message("saved [checkpoints/step-00000100]")
    print("a warning", file=sys.stderr)
    sink.log((), {"summary.best_metric": 1.0})
    sink.close()
    screen = final_screen(console)
    assert screen[:3] == [
        "step   100/300  val.loss 4.2100  val.perplexity 67.40",
        "saved [checkpoints/step-00000100]",
        "a warning",
    ]
    assert "100/300" in screen[3]
    assert len(screen) == 5


def test_the_terminal_is_given_back() -> None:
    console, before = terminal(80), sys.stderr
    sink = ConsoleSink(300, console=console)
    sink.tick(1)
    assert written(console).rindex("\x1b[?25h") > written(console).rindex("\x1b[?25l")  # cursor shown while live
    assert sys.stderr is not before
    sink.close()
    sink.close()
    assert sys.stderr is before


def test_standard_output_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal(80)
    sink = ConsoleSink(300, console=console)
    sink.tick(1)
    print("a result")
    sink.close()
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in written(console)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_does_not_write_through_the_live_display() -> None:
    console = terminal(80)
    sink = ConsoleSink(300, console=console)
    sink.tick(1)
    original = sys.stderr.rich_proxied_file  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:
        os._exit(0 if sys.stderr is original else 1)
    status = os.waitpid(child, 0)[1]
    sink.close()
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_loss_is_that_of_the_newest_step() -> None:
    console = terminal(80)
    sink = ConsoleSink(300, console=console)
    sink.log((0, 10), METRICS)
    sink.tick(11, {"train.loss": 4.5, "train.grad_norm": 0.75})
    sink.close()
    metrics = final_screen(console)[1]
    assert metrics.startswith("loss 4.5000  lr 3.00e-04  grad 0.75  samples/s 194")


def test_the_course_of_the_loss_has_every_step_once() -> None:
    console = terminal(200)
    sink = ConsoleSink(300, console=console)
    for step in range(1, 6):
        sink.log((0, step), METRICS | {"train.loss": 9.0 - step})
        sink.tick(step, {"train.loss": 9.0 - step})
    sink.close()
    assert final_screen(console)[1].startswith("loss 4.0000 █▆▅▃▁  ")


def test_what_is_being_done_stands_in_the_bar_until_all_is_done() -> None:
    console = terminal(60)
    sink = ConsoleSink(30, console=console)
    sink.log((0, 30), METRICS)
    with phase("evaluating") as told:
        told.update(3, 10)
        sink.flush()
    with phase("saving"):
        sink.flush()
    live = written(console)
    assert "evaluating 3/10" in live and "saving" in live and "done" not in live
    assert all(len(line) <= 60 for line in final_screen(console))
    sink.close()
    assert "30/30  done" in final_screen(console)[0] and "saving" not in final_screen(console)[0]


def test_no_color_takes_away_the_colour_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(width=80, force_terminal=True, file=io.StringIO())
    sink = ConsoleSink(300, console=console)
    sink.log((0, 10), METRICS)
    sink.close()
    assert "━" in written(console)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", written(console))


def test_rare_records_have_lines_between_them_off_a_terminal() -> None:
    now = 0.0
    console = Console(width=80, force_terminal=False, file=io.StringIO())
    sink = ConsoleSink(300, console=console, clock=lambda: now)
    for step in range(1, 8):
        now += 5.0
        sink.tick(step, {"train.loss": 3.0})
    sink.close()
    assert [line.split()[1] for line in written(console).splitlines()] == ["2/300", "4/300", "6/300"]


@pytest.mark.parametrize("setting", [("TERM", "dumb"), ("not", "a terminal")])
def test_plain_lines(monkeypatch: pytest.MonkeyPatch, setting: tuple[str, str]) -> None:
    monkeypatch.setenv(*setting)
    console = Console(width=80, force_terminal=setting[0] != "not", file=io.StringIO())
    sink = ConsoleSink(300, console=console)
    sink.message("starting [a]")
    for step in range(1, 11):
        sink.tick(step)
    sink.log((0, 10), METRICS)
    sink.log((0, 10), {"val.loss": 4.21})
    sink.close()
    assert "\x1b" not in written(console)
    start, train, val = written(console).splitlines()  # not broken at 80 columns either
    assert start == "starting [a]"
    assert train.startswith("step    10/300  loss 5.8123  lr 3.00e-04  grad_norm 1.23  samples/s 194")
    assert "  eta " in train
    assert val == "step    10/300  val.loss 4.2100"


def test_default_console_is_standard_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # may not draw live bars into a file
    sink = ConsoleSink(300)
    sink.log((0, 10), {"train.loss": 3.0})
    sink.close()
    assert capsys.readouterr() == ("", "step    10/300  loss 3.0000\n")


def test_a_loss_that_is_not_a_number_is_red() -> None:
    console = Console(width=80, force_terminal=True, file=io.StringIO(), color_system="standard")
    sink = ConsoleSink(300, console=console)
    sink.log((0, 10), {"train.loss": float("nan")})
    sink.close()
    assert "\x1b[1;31mnan" in written(console)


@pytest.mark.parametrize(
    "module", ["screen.console", "screen.cards", "jsonl", "logfile", "meter", "config", "tensorboard"]
)
def test_importing_is_cheap(module: str) -> None:
    code = f"import sys, paddock.telemetry.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_sparkline_falls_with_the_loss_and_keeps_its_size() -> None:
    line = Sparkline(points=16)
    assert str(line) == ""
    line.add(math.nan)
    for step in range(1000):
        line.add(1000.0 - step)
    text = str(line)
    assert 8 <= len(text) < 16
    assert text[0] == "█"
    assert text[-1] == "▁"
    assert list(text) == sorted(text, reverse=True)
