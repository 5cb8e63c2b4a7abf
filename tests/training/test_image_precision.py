"""ResNets in fewer bits: bfloat16 learns and is evaluated; float16 skips the steps that overflow, and goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from paddock.cli.main import run
from paddock.testing.tiny import losses

FLAGS = [
    *"resnet/tiny-synthetic --model.width 8 --data.image-size 32 --data.validation-images 64".split(),
    *"--batch.global 16 --log.every 1 --evaluate.every None".split(),
]
EPSILON = torch.finfo(torch.bfloat16).eps


def test_bfloat16_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sixteen images by heart, which any seed and any processor does; and close to float32 where that can be said."""
    few = ["--data.training-images", "16", "--train.epochs", "None", "--optimizer.lr", "0.02"]
    assert run(["train", *FLAGS, *few, "--steps", "25", "--bf16", "--run-dir", str(tmp_path / "bfloat16")]) == 0
    found = losses(tmp_path / "bfloat16")
    assert len(found) == 25 and found[-1] < found[0] / 2  # a twelfth or less, as measured
    assert run(["train", *FLAGS, *few, "--steps", "1", "--run-dir", str(tmp_path / "float32")]) == 0
    (exact,) = losses(tmp_path / "float32")
    assert found[0] == pytest.approx(exact, rel=EPSILON) and found[0] != exact
    results = []
    for precision in ("bfloat16", "float32"):
        capsys.readouterr()
        assert run(["evaluate", str(tmp_path / "bfloat16"), "--json", "--precision.compute", precision]) == 0
        results.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert [result["val.samples"] for result in results] == [64, 64]
    assert results[0]["val.loss"] == pytest.approx(results[1]["val.loss"], rel=2 * EPSILON)
    assert results[0]["val.loss"] != results[1]["val.loss"]


def test_float16_goes_on_after_steps_that_overflow(tmp_path: Path) -> None:
    flags = ["--steps", "8", "--fp16", "--initial-loss-scale", "1048576", "--run-dir", str(tmp_path / "run")]
    assert run(["train", *FLAGS, *flags]) == 0
    assert len(losses(tmp_path / "run")) == 8 and all(map(math.isfinite, losses(tmp_path / "run")))
    scales, norms = losses(tmp_path / "run", "train.loss_scale"), losses(tmp_path / "run", "train.grad_norm")
    skipped = losses(tmp_path / "run", "train.skipped_steps")[-1]
    assert 0 < skipped < 8 and scales[-1] == 2 ** (20 - skipped)
    assert sum(math.isfinite(norm) for norm in norms if isinstance(norm, float)) == 8 - skipped
