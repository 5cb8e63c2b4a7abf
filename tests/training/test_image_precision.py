"""ResNets in fewer bits: bfloat16 learns and is evaluated; float16 skips the steps that overflow, and goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.tiny import losses

FLAGS = [
    *"resnet/tiny-synthetic --model.width 8 --data.image-size 32 --data.validation-images 64".split(),
    *"--batch.global 16 --log.every 1 --evaluate.every None".split(),
]


def test_bfloat16_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    assert run(["train", *FLAGS, "--steps", "30", "--bf16", "--run-dir", str(run_dir)]) == 0
    found = losses(run_dir)
    assert len(found) == 30 and sum(found[-5:]) < 0.85 * sum(found[:5])
    capsys.readouterr()
    assert run(["evaluate", str(run_dir), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["val.samples"] == 64 and result["val.top1"] > 100 / 8


def test_float16_goes_on_after_steps_that_overflow(tmp_path: Path) -> None:
    flags = ["--steps", "8", "--fp16", "--initial-loss-scale", "1048576", "--run-dir", str(tmp_path / "run")]
    assert run(["train", *FLAGS, *flags]) == 0
    assert len(losses(tmp_path / "run")) == 8 and all(map(math.isfinite, losses(tmp_path / "run")))
    scales, norms = losses(tmp_path / "run", "train.loss_scale"), losses(tmp_path / "run", "train.grad_norm")
    skipped = losses(tmp_path / "run", "train.skipped_steps")[-1]
    assert 0 < skipped < 8 and scales[-1] == 2 ** (20 - skipped)
    assert sum(math.isfinite(norm) for norm in norms if isinstance(norm, float)) == 8 - skipped
