"""`paddock convert-config`, and other systems' configs as recipes of any verb."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.config.load import load_recipe
from paddock.testing.samples.foreign_configs import write_libai, write_mindformers
from paddock.testing.tiny import losses

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_recipe_is_the_output_and_the_account_stands_beside(tmp_path: Path, capsys: Captured) -> None:
    config = write_mindformers(tmp_path)
    assert run(["convert-config", str(config)]) == 0
    said = capsys.readouterr()
    (tmp_path / "piped.yaml").write_text(said.out)
    assert load_recipe(tmp_path / "piped.yaml") == load_recipe(config)
    assert "renamed   parallel_config.model_parallel = 2 → parallel.tensor" in said.err
    assert "idle      context.mode = 0: no meaning here: " in said.err
    assert run(["convert-config", str(config), "--output", "written.yaml", "seed=9"]) == 0
    assert load_recipe(tmp_path / "written.yaml").train.seed == 9
    assert "next: paddock check config written.yaml" in capsys.readouterr().err
    assert run(["convert-config", str(config), "--output", "written.yaml"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_as_json(tmp_path: Path, capsys: Captured) -> None:
    assert run(["convert-config", str(write_libai(tmp_path)), "--json", "train.seed=5"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["system"] == "LiBai" and told["recipe"]["train"]["seed"] == 5 and told["unread"] == []
    [line] = [line for line in told["keys"] if line["key"] == "train.rdma_enabled"]
    assert line["outcome"] == "idle" and line["note"]


def test_what_is_none_is_told(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "plain.yaml").write_text("extends: gpt2/tiny\n")
    assert run(["convert-config", "plain.yaml"]) == 2
    assert "needs no conversion" in capsys.readouterr().err
    assert run(["convert-config", "nowhere.py"]) == 2
    assert "there is no config nowhere.py" in capsys.readouterr().err
    config = write_mindformers(tmp_path)
    assert run(["convert-config", str(config), "optimizer.type=Lamb", "--output", "none.yaml"]) == 2
    assert "refused   optimizer.type" in capsys.readouterr().err and not Path("none.yaml").exists()


def test_a_mindformers_config_trains(tmp_path: Path, capsys: Captured) -> None:
    config = write_mindformers(tmp_path)
    place = ["--data.source", "synthetic", "--steps", "2", "--run-dir", "run"]
    assert run(["train", str(config), *place]) == 2
    assert "1 process does not divide by 8" in capsys.readouterr().err
    assert run(["train", str(config), "use_parallel=False", "runner_config.batch_size=2", *place]) == 0
    assert "note: run_small.yaml is a config of MindFormers" in capsys.readouterr().err
    assert len(losses(Path("run"))) == 2
    assert load_recipe(Path("run/config.yaml")).batch.micro == 2
    assert run(["check", "config", str(config), "--data.source", "synthetic", "--nproc-per-node", "32"]) == 0


def test_a_libai_config_trains_with_its_overrides(tmp_path: Path) -> None:
    config = write_libai(tmp_path)
    flags = ["--data.source", "synthetic", "--data.path", "None"]
    flags += "--tokenizer.kind none --tokenizer.vocab None --tokenizer.merges None".split()
    assert run(["train", str(config), "train.train_iter=2", "optim.lr=1e-4", *flags, "--run-dir", "run"]) == 0
    assert len(losses(Path("run"))) == 2
    assert load_recipe(Path("run/config.yaml")).optimizer.lr == 1e-4
    size = ["train.dist.tensor_parallel_size=2", "train.dist.pipeline_parallel_size=2", "train.global_batch_size=8"]
    assert run(["train", str(config), *size, *flags, "--dry-run", "--nproc-per-node", "8"]) == 0
    assert run(["train", "--config-file", str(config), "--fast-dev-run", *flags, "--dry-run"]) == 0


def test_a_pipe_is_called_one(capsys: Captured) -> None:
    os.mkfifo("q.json")
    assert run(["convert-config", "q.json"]) == 2
    assert "q.json is no file that can be read twice" in capsys.readouterr().err
