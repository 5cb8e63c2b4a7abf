"""The card at the beginning of a run: what it says of memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.inference.trained import read_trained_config
from paddock.telemetry import format as show
from paddock.testing.tiny import TINY


@pytest.mark.parametrize(("flags", "numbers"), [("", 4), ("--optimizer.name sgd --optimizer.momentum 0", 2)])
def test_memory(flags: str, numbers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four bytes of every weight, of its gradient, and of each number that the optimizer keeps of it."""
    assert run(["train", *TINY, *flags.split(), "--steps", "1", "--run-dir", str(tmp_path / "run")]) == 0
    held = show.bytes_(4 * numbers * read_trained_config(str(tmp_path / "run")).num_parameters())
    [told] = re.findall(r"^memory: (.*)$", capsys.readouterr().err, re.MULTILINE)
    assert re.fullmatch(rf"{held} a process for weights, gradients and optimizer; activations about [\d.]+ kB", told)
