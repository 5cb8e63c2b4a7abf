"""`paddock generate` over several processes prints what one does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.cli.main import run


@pytest.mark.parametrize("layout", [["--parallel.tensor", "2"], ["--parallel.pipeline", "2"], []])
def test_two_processes(trained_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], layout: list[str]) -> None:
    (tmp_path / "prompts.txt").write_text("The class\nA name is\nIf\n")
    base = ["generate", str(trained_run), "--prompt-file", str(tmp_path / "prompts.txt"), "--max-new-tokens", "6"]
    flags = ["--num-return-sequences", "2", "--seed", "7", "--json"]
    assert run([*base, *flags]) == 0
    alone = json.loads(capfd.readouterr().out)
    assert len(alone) == 6 and alone[0]["text"] != alone[1]["text"]
    assert run([*base, *flags, "--nproc-per-node", "2", *layout]) == 0
    assert json.loads(capfd.readouterr().out) == alone
