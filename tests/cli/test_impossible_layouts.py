"""Impossible layouts fail before any process starts: exit code 2, what is legal, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.tiny import TINY  # 2 layers, 4 heads, 4 micro-batches of 2


@pytest.mark.parametrize(
    ("flags", "legal"),
    [
        ("--nproc-per-node 8 --parallel.tensor 8", "legal: 1, 2, 4"),
        ("--nproc-per-node 4 --parallel.pipeline 4", "legal: 1, 2"),
        (
            "--nproc-per-node 2 --parallel.pipeline 2 --parallel.schedule interleaved",
            "--parallel.schedule 1f1b or gpipe",
        ),
        ("--nproc-per-node 2 --parallel.pipeline 2 --parallel.stages 0,2", "skips stage 1"),
        ("--nproc-per-node 2 --parallel.pipeline 2 --batch.micro 8", "--batch.micro 4 (2 micro-batches)"),
        ("--nproc-per-node 3 --parallel.tensor 2", "from 1, 3"),
        ("--nproc-per-node 3", "--batch.global 6 or 12"),
        ("--parallel.shard optimizer", "no effect"),
        ("--nproc-per-node 2 --parallel.tensor 2 --device sdaa", "--parallel.tensor 1"),
    ],
)
def test_impossible_layouts(
    flags: str, legal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("paddock.jobs.train.run", start)
    assert run(["train", *TINY, *flags.split(), "--run-dir", str(tmp_path / "run")]) == 2
    assert legal in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
