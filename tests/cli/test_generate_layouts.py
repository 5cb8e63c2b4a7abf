"""`paddock generate` over several processes prints what one does."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.commands import Command


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


def test_two_machines(trained_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The first of them prints what one process does, the other one nothing."""
    base = ["generate", str(trained_run), "--prompt", "The class", "A name is", "--max-new-tokens", "6", "--json"]
    assert run(base) == 0
    alone = capfd.readouterr().out
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(port), "--parallel.pipeline", "2"]
    nodes = [Command(*base, *place, "--node-rank", str(rank), cwd=tmp_path) for rank in (0, 1)]
    try:
        told = [node.communicate() for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    assert [node.returncode for node in nodes] == [0, 0], told
    assert [out for out, _ in told] == [alone, ""]
