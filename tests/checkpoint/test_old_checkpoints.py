"""Checkpoints that earlier versions wrote load, go on and are evaluated as they were then.

`data/run_format_2` is a run of a tiny GPT-2 on random tokens, two steps of four, with AdamW's state and an average of
the weights, written before checkpoints said what their data position means. Beside it are the same run as four
processes wrote it, each a part (tensor 2 × pipeline 2), and a BERT as two wrote it that shared its parameters. The
numbers are what the version that wrote them went on with.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.tiny import losses

DATA = Path(__file__).parent / "data"
OLD = DATA / "run_format_2"
WHOLE = ["--parallel.tensor", "1", "--parallel.pipeline", "1", "--parallel.shard", "none"]


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "run"))


def test_an_old_run_goes_on_as_it_would_have(old_run: Path) -> None:
    """Weights, optimizer, schedule, data position (the training losses) and the average (the evaluation)."""
    flags = ["--run-dir", str(old_run), "--checkpoint.load", "auto"]
    assert run(["train", str(old_run / "config.yaml"), *flags]) == 0
    assert losses(old_run) == pytest.approx([3.4865769, 3.5151398], rel=1e-5)
    assert losses(old_run, "train.grad_norm") == pytest.approx([0.7961439, 0.8536117], rel=1e-4)
    assert losses(old_run, "val.loss") == pytest.approx([3.4653394], rel=1e-5)
    assert losses(old_run, "summary.best_metric") == pytest.approx([3.4653394], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "expected", "norms", "val_loss"),
    [
        ("run_format_2_gpt2_tp2pp2", [3.4865766, 3.5151396], [0.7961439, 0.8536117], 3.4653395),
        ("run_format_2_bert_dp2_sharded", [3.4535121, 3.4886889], [2.1305685, 2.0195720], 3.4850245),
    ],
)
def test_an_old_run_of_several_processes_goes_on_in_one(
    name: str, expected: list[float], norms: list[float], val_loss: float, tmp_path: Path
) -> None:
    """Whatever layout wrote it."""
    old = Path(shutil.copytree(DATA / name, tmp_path / "run"))
    flags = ["--run-dir", str(old), "--checkpoint.load", "auto", *WHOLE]
    assert run(["train", str(old / "config.yaml"), *flags]) == 0
    assert losses(old) == pytest.approx(expected, rel=1e-5)
    assert losses(old, "train.grad_norm") == pytest.approx(norms, rel=1e-4)
    assert losses(old, "val.loss") == pytest.approx([val_loss], rel=1e-5)


def test_an_old_run_goes_on_under_its_own_seed(old_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its checkpoints do not say what their data position means, but their recipe has the seed."""
    flags = ["--run-dir", str(old_run), "--checkpoint.load", "auto", "--train.seed", "99"]
    before = (old_run / "config.yaml").read_bytes()
    assert run(["train", str(old_run / "config.yaml"), *flags]) == 2
    assert "error: train.seed = 99" in (told := capsys.readouterr().err)
    assert "--checkpoint.allow-changes" in told
    assert (old_run / "config.yaml").read_bytes() == before
    assert run(["train", str(old_run / "config.yaml"), *flags, "--checkpoint.allow-changes"]) == 0


def test_an_old_checkpoint_is_evaluated(old_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(old_run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["val.loss"] == pytest.approx(3.4780712, rel=1e-5)


def test_an_old_checkpoint_gives_its_weights_to_a_new_run(old_run: Path, tmp_path: Path) -> None:
    flags = ["--checkpoint.load", str(old_run), "--checkpoint.weights-only", "True", "--train.seed", "99"]
    assert run(["train", str(old_run / "config.yaml"), *flags, "--run-dir", str(tmp_path / "new")]) == 0
    assert len(losses(tmp_path / "new")) == 4
