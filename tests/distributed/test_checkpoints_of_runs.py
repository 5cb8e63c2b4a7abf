"""The commands on a run that was trained with tensor 2 × pipeline 2 work as on one of a single process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from paddock.checkpoint.directory import find_checkpoint
from paddock.checkpoint.storage import StoredTensors, saved_tensors
from paddock.checkpoint.tensors import MODEL
from paddock.cli.main import run
from paddock.telemetry.jsonl import read_metrics
from paddock.testing.commands import paddock
from paddock.testing.tiny import TINY, losses

FLAGS = ["--model.dropout", "0", "--schedule.decay-steps", "8", "--checkpoint.every", "2"]
GO_ON = ["--checkpoint.load", "auto"]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps over four processes, with checkpoints in the background."""
    path = tmp_path_factory.mktemp("four") / "run"
    layout = ["--nproc-per-node", "4", "--parallel.tensor", "2", "--parallel.pipeline", "2"]
    flags = [*FLAGS, "--steps", "4", "--checkpoint.asynchronous", "True", "--evaluate.batches", "None"]
    result = paddock("train", *TINY, *layout, *flags, "--run-dir", str(path))
    assert result.returncode == 0, result.stderr
    return path


def test_metrics_tell_who_computes_and_who_waits(run_dir: Path) -> None:
    records = [record.get("data", {}) for record in read_metrics(run_dir / "metrics.jsonl")]
    last = [data for data in records if "train.loss" in data][-1]
    busy = [last["train.busy_time.0"], last["train.busy_time.1"]]
    assert min(busy) > 0
    assert last["train.wait_time"] == pytest.approx(max(0.0, last["train.compute_time"] - sum(busy) / 2))
    assert last["train.tokens_per_second_per_device"] == pytest.approx(last["train.tokens_per_second"] / 4)


def test_generate_evaluate_and_convert(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(run_dir), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["val.loss"]
    assert measured == pytest.approx(losses(run_dir, "val.loss")[-1], rel=1e-5)
    folder, back = tmp_path / "huggingface", tmp_path / "back"
    assert run(["convert", str(run_dir), str(folder), "--to", "huggingface"]) == 0
    assert run(["convert", str(folder), str(back), "--to", "paddock"]) == 0
    ours, theirs = StoredTensors(find_checkpoint(run_dir), MODEL), StoredTensors(back, MODEL)
    assert set(ours) == set(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    texts = []
    for source in (run_dir, folder, back):
        capsys.readouterr()
        assert run(["generate", str(source), "--prompt", "The", "--max-new-tokens", "8", "--temperature", "0"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0].startswith("The") and texts == texts[:1] * 3


def test_a_run_moves_from_four_processes_to_two_to_one(run_dir: Path, tmp_path: Path) -> None:
    """Weights, optimizer, schedule and data position: the losses are those of one process from the beginning."""
    alone = tmp_path / "alone"
    assert run(["train", *TINY, *FLAGS, "--steps", "8", "--run-dir", str(alone)]) == 0
    two = ["--nproc-per-node", "2", "--parallel.shard", "parameters"]
    result = paddock("train", *TINY, *FLAGS, *two, *GO_ON, "--steps", "6", "--run-dir", str(run_dir))
    assert result.returncode == 0, result.stderr
    assert run(["train", *TINY, *FLAGS, *GO_ON, "--steps", "8", "--run-dir", str(run_dir)]) == 0
    assert losses(run_dir) == pytest.approx(losses(alone), rel=1e-5)
    newest = [find_checkpoint(path) for path in (run_dir, alone)]
    assert saved_tensors(newest[0]) == saved_tensors(newest[1])
