"""Foreign scripts: the numbers of what they print become a unified log, and their exit status is ours."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.errors import ConfigError
from paddock.telemetry.jsonl import JsonLinesSink, metrics_of, read_metrics
from paddock.testing.processes import wait_for
from paddock.zoo.patterns import LineReader, parse_patterns
from paddock.zoo.wrap import Lines, UnifiedLog

LINES = {
    "loss: 0.5": ({"train.loss": 0.5}, None, None),
    "loss 0.5": ({"train.loss": 0.5}, None, None),
    "Epoch 1 step 10/100 loss=0.25": ({"train.loss": 0.25}, 1, 10),
    "{'loss': 0.5, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': 0.5}": (
        {"train.loss": 0.5, "train.grad_norm": 1.5, "train.lr": 1e-5},
        0,
        None,
    ),
    '{"step": 3, "loss": 2.5, "lr": 0.1}': ({"train.loss": 2.5, "train.lr": 0.1}, None, 3),
    "{'eval_loss': 0.5, 'eval_accuracy': 0.9, 'epoch': 1.0}": ({"val.loss": 0.5, "val.accuracy": 0.9}, 1, None),
    "Epoch: [0][  10/5005]\tTime  0.5 ( 0.6)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.10)": (
        {"train.loss": 6.9, "train.accuracy": 0.0},
        0,
        10,
    ),
    "Test: [ 10/196]\tLoss 1.5 (1.4)\tAcc@1 70.00 (71.0)": ({"val.loss": 1.5, "val.accuracy": 70.0}, None, None),
    " iteration       10/  100 | learning rate: 1.500E-04 | lm loss: 7.5E+00 | loss scale: 1.0 | grad norm: 1.25 |": (
        {"train.loss": 7.5, "train.lr": 1.5e-4, "train.grad_norm": 1.25},
        None,
        10,
    ),
    "eta: 1:00 iteration: 20/100 consumed_samples: 80 total_loss: 7.5 total_throughput: 100.5 samples/s lr: 1.0e-04": (
        {"train.loss": 7.5, "train.lr": 1e-4, "train.ips": 100.5},
        None,
        20,
    ),
    "{ Epoch:[  1/  2], step:[   10/  100], loss: 7.5, lr: 1e-4, overflow cond: False, loss_scale: 1024.0}": (
        {"train.loss": 7.5, "train.lr": 1e-4},
        1,
        10,
    ),
    "[Train][Epoch 1/90][Iter: 10/100]lr(CosineAnnealing): 0.1, top1: 0.5, loss: 6.9, ips: 512.0 samples/s": (
        {"train.loss": 6.9, "train.lr": 0.1, "train.accuracy": 0.5, "train.ips": 512.0},
        1,
        10,
    ),
    "step 4 | loss 3.25 | 811.5 tokens/s": ({"train.loss": 3.25, "train.tokens_per_second": 811.5}, None, 4),
    "Validation: perplexity 20.5, loss 3.02": ({"val.perplexity": 20.5, "val.loss": 3.02}, None, None),
    "loss: tensor(0.5, device='cpu')": ({"train.loss": 0.5}, None, None),
    "loss scale: 65536": ({}, None, None),
    "no loss of generality; lossless 0.5": ({}, None, None),
    "learning_rate_schedule: 3, tokens/s 4.6k": ({}, None, None),
    "loss: 1.2.3": ({}, None, None),
    "": ({}, None, None),
}


@pytest.mark.parametrize("line", LINES)
def test_the_numbers_of_a_line(line: str) -> None:
    metrics, epoch, step = LINES[line]
    found = LineReader().read(line)
    assert (found.metrics, found.epoch, found.step) == (metrics, epoch, step)


def test_a_loss_that_is_no_number() -> None:
    assert math.isnan(LineReader().read("step 3 loss nan").metrics["train.loss"])
    assert LineReader().read("loss=inf").metrics["train.loss"] == math.inf


def test_long_lines_take_no_time() -> None:
    for line in ("loss" * 10**6, "loss: " + "1" * 10**6, " " * 10**6 + "loss", "epoch" + ":" * 10**6):
        LineReader().read(line)


def test_a_pattern_of_the_users_takes_the_place_of_ours() -> None:
    reader = LineReader(parse_patterns((r"train.loss=cost is ([\d.]+)", r"step=at (\d+)", r"val.bleu=BLEU=(\S+)")))
    found = reader.read("at 7 the cost is 0.25, loss: 9, BLEU=31.5")
    assert found.metrics == {"train.loss": 0.25, "val.bleu": 31.5} and found.step == 7


@pytest.mark.parametrize("text", ["loss", "loss=(x)", "train.loss=(", "train.loss=x", "train.loss=(a)(b)"])
def test_patterns_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--pattern"):
        parse_patterns((text,))


def records(path: Path) -> list[tuple[list[int], dict[str, float]]]:
    return [(record["step"], metrics_of(record)) for record in read_metrics(path) if record["type"] == "LOG"]


def test_steps_go_on_where_a_script_counts_anew(tmp_path: Path) -> None:
    log = UnifiedLog(JsonLinesSink(tmp_path / "log"), LineReader())
    for line in (
        "epoch 0 step 1/2 loss 4",
        "epoch 0 step 2/2 loss 3",
        "epoch 0 val loss 3.5",
        "epoch 1 step 1/2 loss 2",
    ):
        log.line(line)
    log.line("loss: 1")
    assert [step for step, _ in records(tmp_path / "log")] == [[0, 1], [0, 2], [0, 2], [1, 3], [1, 4]]


def test_speed_is_measured_where_none_is_printed(tmp_path: Path) -> None:
    times = iter([0.0, 0.5, 1.5])
    log = UnifiedLog(JsonLinesSink(tmp_path / "log"), LineReader(), samples_per_step=8, clock=lambda: next(times))
    for step in (1, 2, 4):
        log.line(f"step {step} loss 1.0")
    assert [data.get("train.ips") for _, data in records(tmp_path / "log")] == [None, 16.0, 16.0]


def test_records_among_the_lines_keep_their_steps(tmp_path: Path) -> None:
    log = UnifiedLog(JsonLinesSink(tmp_path / "log"), LineReader())
    log.line('DLLL {"type": "LOG", "step": [2, 7], "data": {"train.loss": 1.5}}')
    log.line('TCAPPDLL {"type": "LOG", "step": [2, 8], "data": "{\'train.loss\': \'1.25\'}"}')
    log.line('DLLL {"type": "LOG", broken')
    assert records(tmp_path / "log") == [([2, 7], {"train.loss": 1.5}), ([2, 8], {"train.loss": 1.25})]


def test_lines_end_where_a_progress_bar_returns() -> None:
    lines = Lines()
    whole = "loss: 1\rloss: 2\nhalf é".encode()
    told = [lines.add(part) for part in (whole[:12], whole[12:-1], whole[-1:], b"")]
    assert "".join(text for text, _ in told) == whole.decode()
    assert [line for _, found in told for line in found] == ["loss: 1", "loss: 2", "half é"]


SCRIPT = """
import sys
print("arguments", sys.argv[1:])
for step in range(1, 4):
    print(f"step {step} loss {4 / step} ips {10}", file=sys.stderr if step == 2 else sys.stdout)
sys.exit(5)
"""


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    assert run(["zoo", "wrap", str(script), "--run-dir", str(folder), "--", "--epochs", "1", "--help"]) == 5
    said = capfd.readouterr()
    assert (
        "arguments ['--epochs', '1', '--help']" in said.out and "step 2 loss" in said.err and "step 2" not in said.out
    )
    losses = [data["train.loss"] for _, data in records(folder / "metrics.jsonl")]
    assert sorted(losses, reverse=True) == [4.0, 2.0, 4 / 3]
    first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert first["type"] == "METADATA" and first["metric"] == "train.loss" and "elapsedtime" in first
    assert run(["zoo", "wrap", str(script), "--run-dir", str(folder)]) == 2  # never over another log
    assert "two runs would mix" in capfd.readouterr().err


def test_a_script_that_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["zoo", "wrap", str(tmp_path / "none.py"), "--run-dir", str(tmp_path / "a")]) == 2
    (tmp_path / "plain").write_text("x")
    assert run(["zoo", "wrap", str(tmp_path / "plain"), "--run-dir", str(tmp_path / "b")]) == 2
    assert run(["zoo", "wrap", "sh", "--run-dir", str(tmp_path / "d"), "--", "-c", "echo loss: 1.5; exit 4"]) == 4
    assert records(tmp_path / "d" / "metrics.jsonl") == [([0, 1], {"train.loss": 1.5})]
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho nothing to see; exit 3\n")
    program.chmod(0o755)
    assert run(["zoo", "wrap", str(program), "--run-dir", str(tmp_path / "c")]) == 3
    assert "no numbers were found" in capfd.readouterr().err


def test_a_stop_signal_is_passed_on(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import pathlib, time\npathlib.Path('begun').touch()\nwhile True: time.sleep(1)\n")
    words = [sys.executable, "-m", "paddock", "zoo", "wrap", "train.py", "--run-dir", "run"]
    process = subprocess.Popen(words, cwd=tmp_path, env=os.environ, stderr=subprocess.DEVNULL)
    wait_for(lambda: (tmp_path / "begun").exists() or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
