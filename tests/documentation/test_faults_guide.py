"""The guide to faults: its commands run as they are written, in both languages the same, and what it shows is what they
say."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.telemetry.jsonl import metrics_of, read_metrics
from paddock.testing.commands import Command
from paddock.testing.processes import is_gone, wait_for
from paddock.testing.tiny import losses

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "faults.md"
TEXT = GUIDE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


def start(command: str, folder: Path) -> Command | subprocess.Popen[str]:
    """A command of the guide, with variables before it if it has some."""
    words = shlex.split(command)
    variables = dict([words.pop(0).split("=")]) if "=" in words[0] else {}
    program = words.pop(0)
    if program == "paddock":
        return Command(*words, cwd=folder, environment=os.environ | variables)
    assert program == "python"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=os.environ | variables, **pipes)  # type: ignore[call-overload, no-any-return]


def command_with(text: str) -> str:
    [found] = [command for command in COMMANDS if text in command]
    return found


def test_the_languages_are_in_step() -> None:
    chinese = GUIDE.with_name("faults.zh.md").read_text(encoding="utf-8")
    for pattern in (r"^```\w*\n.*?^```$", r"(?<=^- \*\*)[a-z]+\b|`[^`\n]+`"):
        found = [re.findall(pattern, text, re.DOTALL | re.MULTILINE) for text in (TEXT, chinese)]
        assert found[0] and sorted(found[0]) == sorted(found[1])
    for pattern in (r"^## ", r"^- ", r"\]\(", r"\n\n"):
        assert len(re.findall(pattern, TEXT, re.MULTILINE)) == len(re.findall(pattern, chinese, re.MULTILINE)), pattern


def test_every_command_is_tested() -> None:
    tested = ("--train.hang-timeout", "runs/slow", "runs/replay", "testing.simulated", "PYTHONPATH")
    assert sorted(map(command_with, tested)) == sorted(COMMANDS)


@pytest.mark.slow
def test_a_frozen_process(tmp_path: Path) -> None:
    job = start(command_with("--train.hang-timeout"), tmp_path)
    metrics = tmp_path / "runs" / "hang" / "metrics.jsonl"
    wait_for(lambda: (metrics.exists() and '"train.loss"' in metrics.read_text()) or job.poll() is not None)
    frozen = rank_of(job.pid, "paddock/1")
    os.kill(frozen, signal.SIGSTOP)
    _, said = job.communicate()
    assert job.returncode == 6, said
    [shown] = re.findall(r"^error: the job hangs.*?^```", TEXT, re.DOTALL | re.MULTILINE)
    begun = said.index("error: the job hangs")
    for line in shown.splitlines()[:-1]:
        wanted = plain(line.partition("…")[0])
        assert wanted in [plain(one)[: len(wanted)] for one in said[begun:].splitlines()], (line, said)
    assert f"process {frozen})" in said and is_gone(frozen)


def plain(line: str) -> str:
    """Without what differs from machine to machine: numbers, names of hosts, and where a rank happens to wait."""
    line = re.sub(r" (waits|is) in .*", " waits in", line)
    return re.sub(r"\d+", "#", re.sub(r"\([\w.-]+, process", "(host, process", line)).strip()


def rank_of(launcher: int, name: str) -> int:
    """The process of the job that a launcher started which is called so, as `pgrep` finds it."""
    todo = [launcher]
    while todo:
        process = Path(f"/proc/{todo.pop()}")
        if (process / "comm").read_text().strip() == name:
            return int(process.name)
        todo += [int(child) for file in (process / "task").glob("*/children") for child in file.read_text().split()]
    raise AssertionError(f"no process is called {name}")


def test_own_times(tmp_path: Path) -> None:
    job = start(command_with("runs/slow"), tmp_path)
    _, said = job.communicate()
    assert job.returncode == 0, said
    records = [metrics_of(record) for record in read_metrics(tmp_path / "runs" / "slow" / "metrics.jsonl")]
    logged = [metrics for metrics in records if "train.own_time.1" in metrics]
    assert logged and all(metrics["train.own_time.0"] > 0 for metrics in logged)


def test_steps_are_computed_twice(tmp_path: Path) -> None:
    job = start(command_with("runs/replay"), tmp_path)
    _, said = job.communicate()
    assert job.returncode == 0, said
    assert losses(tmp_path / "runs" / "replay")


@pytest.mark.slow
def test_a_wrong_number_is_found(tmp_path: Path) -> None:
    made = start(command_with("testing.simulated"), tmp_path)
    assert made.wait() == 0
    job = start(command_with("PYTHONPATH"), tmp_path)
    _, said = job.communicate()
    assert job.returncode == 5, said
    assert "computed twice, it is not the same on rank 0" in said
    assert "layers.1.feed_forward" in said and "the first computation was wrong" in said
